// Runs that go on over several jobs, on a played worker: what the ranks tell of each placement, and
// what the coordinator answers of the run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {

// Base is CoreTest or a fixture above it.
template <class Base>
class RunRig : public Base {
 protected:
  // The job's epoch is accepted, its ranks are ready and train this run.
  v1::Job Begin(Worker& worker, const std::string& uid, const v1::Run& run, int64_t from_step) {
    const v1::Job job = this->Get(uid);
    EXPECT_EQ(job.state(), v1::ADMITTED) << job.message();
    this->Accept(worker, job);
    this->Report(worker, RankMessage(job, 0, v1::READY));
    v1::WorkerMessage message = ReportOf(job);
    v1::RunInfo* info = message.mutable_job_report()->mutable_run_info();
    info->set_total_steps(1'000'000);
    info->set_resumed_from_step(from_step);
    info->set_checkpoint_path("/c/" + job.name());
    *info->mutable_run() = run;
    info->set_run_begins(from_step == 0);
    this->Report(worker, std::move(message));
    return this->Get(uid);
  }
  v1::Job SubmitAndBegin(Worker& worker, const std::string& name, const std::string& run,
                         int64_t from_step) {
    return Begin(worker, this->Submit(TinyJob(name, 1)).uid(), RunOf(run), from_step);
  }
  static v1::Run RunOf(const std::string& id) {
    v1::Run run;
    run.set_id(id);
    return run;
  }
  // Steps first to last, whose loss is `loss`.
  void Train(Worker& worker, const v1::Job& job, int64_t first, int64_t last, double loss = 1) {
    v1::WorkerMessage message = StepsMessage(job, first, last);
    for (v1::StepRecord& step : *message.mutable_steps()->mutable_steps()) step.set_loss(loss);
    this->Report(worker, std::move(message));
  }
  void Save(Worker& worker, const v1::Job& job, int64_t step) {
    v1::WorkerMessage message = SavedMessage(job, step);
    v1::CheckpointInfo* saved = message.mutable_job_report()->mutable_checkpoint_saved();
    saved->set_run(job.run().id());
    saved->set_path(fmt::format("/c/{}/step-{}-{}", job.name(), step, job.epoch()));
    saved->set_time_us(++saves_);
    this->Report(worker, std::move(message));
  }
  // The job ends: its steps are done.
  void Finish(Worker& worker, const v1::Job& job, int64_t step) {
    this->Report(worker, EndedMessage(job, step, /*completed=*/true));
    this->Gone(worker, job);
    EXPECT_EQ(this->Get(job.uid()).state(), v1::SUCCEEDED);
  }
  // Its rank is killed.
  void Fail(Worker& worker, const v1::Job& job) {
    v1::WorkerMessage killed = RankMessage(job, 0, v1::FAULTED);
    killed.mutable_rank_report()->mutable_status()->set_exited(true);
    killed.mutable_rank_report()->mutable_status()->set_exit_signal(9);
    this->Report(worker, killed);
    this->Gone(worker, job);
    EXPECT_EQ(this->Get(job.uid()).state(), v1::FAILED);
  }
  // Its ranks save `step` and leave.
  void Release(Worker& worker, const v1::Job& job, int64_t step) {
    EXPECT_TRUE(this->Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
    v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::RELEASE), step, step);
    v1::CheckpointInfo* saved =
        done.mutable_job_report()->mutable_command_done()->mutable_checkpoint();
    *saved = Saved(step);
    saved->set_run(job.run().id());
    saved->set_path(fmt::format("/c/{}/step-{}-{}", job.name(), step, job.epoch()));
    saved->set_time_us(++saves_);
    this->Report(worker, std::move(done));
    this->Report(worker, EndedMessage(job, step, false));
    this->Gone(worker, job);
    EXPECT_EQ(this->Get(job.uid()).state(), v1::PAUSED_RELEASED);
  }
  // A submission that ends without a placement.
  v1::Job FailAtOnce(const std::string& name) {
    v1::Job job = this->Submit(TinyJob(name, 64));
    EXPECT_TRUE(this->Cancel(job.uid(), false).ok());
    EXPECT_EQ(this->Get(job.uid()).state(), v1::CANCELLED);
    return job;
  }

  StatusOr<v1::History> Ask(v1::QueryHistoryRequest request) {
    auto answer = this->core_->api().streams().QueryHistory(request);
    if (!answer.ok()) return answer.status();
    v1::History history;
    (*answer)(&history);
    return history;
  }
  v1::History HistoryOf(const std::string& uid, int attempt = 0) {
    v1::QueryHistoryRequest request;
    request.mutable_job()->set_uid(uid);
    request.set_attempt(attempt);
    auto history = Ask(request);
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? *std::move(history) : v1::History();
  }
  // Each step of a walk in pages of `limit`, with its attempt.
  std::vector<std::pair<int64_t, int>> Walk(const std::string& uid, int limit) {
    std::vector<std::pair<int64_t, int>> out;
    v1::QueryHistoryRequest request;
    request.mutable_job()->set_uid(uid);
    request.set_limit(limit);
    for (;;) {
      const auto page = Ask(request);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) return out;
      EXPECT_LE(page->steps_size(), limit);
      for (int i = 0; i < page->steps_size(); ++i)
        out.emplace_back(page->steps(i), i < page->attempts_size() ? page->attempts(i) : 0);
      if (page->next_step() == 0) return out;
      EXPECT_GT(page->next_step(), request.after_step());
      request.set_after_step(page->next_step());
    }
  }
  static std::vector<int64_t> StepsOf(const v1::History& history) {
    return {history.steps().begin(), history.steps().end()};
  }
  static std::vector<int> AttemptsOf(const v1::History& history) {
    return {history.attempts().begin(), history.attempts().end()};
  }

 private:
  static v1::WorkerMessage ReportOf(const v1::Job& job) {
    v1::WorkerMessage message;
    message.mutable_job_report()->set_job_uid(job.uid());
    message.mutable_job_report()->set_epoch(job.epoch());
    return message;
  }
  int64_t saves_ = 1'000'000;
};

}  // namespace mt::daemon
