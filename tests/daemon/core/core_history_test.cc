// Steps through the core: on disk before they are acknowledged, each once whatever comes again,
// streamed without gap or double.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/core/history_core_fixture.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;

TEST_F(HistoryCoreTest, WhatIsAcknowledgedIsOnDisk) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 500));
  Flush();
  EXPECT_EQ(LastAck(worker), worker.seq);
  Restart();
  EXPECT_EQ(Kept(job.uid()).steps, Range(1, 500));
}

TEST_F(HistoryCoreTest, WhatComesAgainIsHeldOnce) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 50));
  // The report is on disk in the history, not in the store: killed between the two.
  ASSERT_TRUE(history_->Flush().ok());
  Restart();
  worker.seq -= 1;
  Connect(&worker, 1, {[&] {
    v1::HeldAllocation held;
    held.set_job_uid(job.uid());
    held.set_epoch(job.epoch());
    return held;
  }()});
  Report(worker, StepsMessage(job, 1, 60));
  Flush();
  EXPECT_EQ(Kept(job.uid()).steps, Range(1, 60));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 60);
  EXPECT_EQ(Stream(job.uid(), 0), Range(1, 60));
}

TEST_F(HistoryCoreTest, NothingIsAcknowledgedWhileTheDiskRefuses) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 10));
  Flush();
  const int64_t safe = LastAck(worker);
  // A file where the folder should be.
  fs::rename(folder_ + "/history", folder_ + "/away");
  std::ofstream(folder_ + "/history") << "x";
  Restart();
  v1::HeldAllocation held;
  held.set_job_uid(job.uid());
  held.set_epoch(job.epoch());
  Connect(&worker, 1, {held});
  Report(worker, StepsMessage(job, 11, 20));
  Flush();
  EXPECT_LE(LastAck(worker), safe);
  EXPECT_EQ(Get(job.uid()).last_step().step(), 20) << "the job goes on all the same";
  // A coordinator that starts anew gets them again, although it took the report before.
  fs::remove(folder_ + "/history");
  fs::rename(folder_ + "/away", folder_ + "/history");
  Restart();
  Connect(&worker, 1, {held});
  worker.seq -= 1;
  Report(worker, StepsMessage(job, 11, 20));
  Flush();
  EXPECT_EQ(LastAck(worker), worker.seq);
  EXPECT_EQ(Kept(job.uid()).steps, Range(1, 20));
}

TEST_F(HistoryCoreTest, AcknowledgementsComeWhenTheDiskIsBack) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  fs::remove_all(folder_ + "/history");
  std::ofstream(folder_ + "/history") << "x";
  Report(worker, StepsMessage(job, 1, 20));
  Flush();
  EXPECT_LT(LastAck(worker), worker.seq);
  fs::remove(folder_ + "/history");
  Flush();
  Flush();
  EXPECT_EQ(LastAck(worker), worker.seq);
  Restart();
  EXPECT_EQ(Kept(job.uid()).steps, Range(1, 20));
}

TEST_F(HistoryCoreTest, AStreamBeginsWithTheHistory) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  for (int64_t step = 1; step <= 6'000; step += 1'000) {
    Report(worker, StepsMessage(job, step, step + 999));
    if (step != 2'001) continue;
    v1::WorkerMessage eval;
    eval.mutable_job_report()->set_job_uid(job.uid());
    eval.mutable_job_report()->set_epoch(job.epoch());
    eval.mutable_job_report()->mutable_eval()->set_step(3'000);
    eval.mutable_job_report()->mutable_eval()->set_split("valid");
    eval.mutable_job_report()->mutable_eval()->set_time_us(5);
    Report(worker, eval);
  }
  Flush();
  // 2,048 are in memory; the evaluation stands behind its step, once.
  std::vector<int64_t> want = Range(2'991, 6'000);
  want.insert(want.begin() + 10, -3'000);
  EXPECT_EQ(Stream(job.uid(), 2'990), want);
  Restart();  // nothing is in memory
  EXPECT_EQ(Stream(job.uid(), 2'990), want);
}

TEST_F(HistoryCoreTest, AnEndedJobIsStillStreamedAndADeletedOneIsNot) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 10));
  Report(worker, EndedMessage(job, 10, /*completed=*/true));
  Gone(worker, job);
  ASSERT_EQ(Get(job.uid()).state(), v1::SUCCEEDED);
  Pass(std::chrono::minutes(10));
  EXPECT_EQ(core_->feeds().num_step_feeds(), 0U);
  EXPECT_EQ(Stream(job.uid(), 4), Range(5, 10));
  Flush();
  EXPECT_TRUE(fs::exists(folder_ + "/history/" + job.uid() + ".steps"));
  v1::DeleteJobRequest request;
  request.mutable_job()->set_uid(job.uid());
  request.set_request_id(base::NewUid());
  v1::Operation operation;
  ASSERT_TRUE(core_->api().verbs().Delete(request, "tester", &operation).ok());
  Settle();
  EXPECT_FALSE(fs::exists(folder_ + "/history/" + job.uid() + ".steps"));
}

TEST_F(HistoryCoreTest, TheHistoryOfAJobThatTheStoreForgotReturnsWithItsRanks) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 50));
  Flush();
  // An empty store over the same history.
  core_.reset();
  store_.reset();
  for (const char* name : {"coordinator.db", "coordinator.db-wal", "coordinator.db-shm"})
    fs::remove(folder_ + "/" + name);
  StartCore();
  Restart();
  v1::HeldAllocation held = Held(job, v1::TRAINING);
  held.set_world_size(1);
  held.set_job_name("demo");
  worker.uid = base::NewUid();
  worker.seq = 0;
  Connect(&worker, 1, {held});
  EXPECT_TRUE(fs::exists(folder_ + "/history/unknown"));
  Report(worker, StepsMessage(job, 51, 60));
  Flush();
  EXPECT_EQ(LastAck(worker), worker.seq);
  Restart();
  EXPECT_EQ(Kept(job.uid()).steps, Range(1, 60)) << "of an orphan, too";
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
}

TEST_F(HistoryCoreTest, QueriesAreCheckedAndAnswered) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 1'000));
  v1::QueryHistoryRequest request;
  request.mutable_job()->set_name("demo");
  request.set_from_step(10);
  request.set_to_step(19);
  request.add_names("loss");
  auto answer = core_->api().streams().QueryHistory(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  v1::History history;
  (*answer)(&history);
  EXPECT_EQ(std::vector<int64_t>(history.steps().begin(), history.steps().end()), Range(10, 19));
  ASSERT_EQ(history.columns_size(), 1);
  EXPECT_EQ(history.columns(0).last_size(), 10);
  EXPECT_EQ(history.last_step(), 1'000);
  request.set_to_step(5);
  EXPECT_EQ(rpc::ReasonOf(core_->api().streams().QueryHistory(request).status()),
            "INVALID_REQUEST");
  request.clear_to_step();
  request.set_points(-1);
  EXPECT_EQ(rpc::ReasonOf(core_->api().streams().QueryHistory(request).status()),
            "INVALID_REQUEST");
  request.set_points(0);
  request.set_limit(-1);
  EXPECT_EQ(rpc::ReasonOf(core_->api().streams().QueryHistory(request).status()),
            "INVALID_REQUEST");
  // A page of a walk.
  request.set_limit(100);
  request.set_after_step(800);
  answer = core_->api().streams().QueryHistory(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  history.Clear();
  (*answer)(&history);
  EXPECT_EQ(std::vector<int64_t>(history.steps().begin(), history.steps().end()), Range(801, 900));
  EXPECT_EQ(history.columns_size(), 1);
  EXPECT_EQ(history.next_step(), 900);
  EXPECT_EQ(history.epoch(), job.epoch());
  EXPECT_EQ(history.epoch_base(), 0);
  request.mutable_job()->set_name("nobody");
  EXPECT_EQ(core_->api().streams().QueryHistory(request).status().code(),
            absl::StatusCode::kNotFound);
}

// Asked for they come alone, of the newest evaluations as many as fit into a message; with all else
// they stay where they are.
TEST_F(HistoryCoreTest, SamplesComeWhereTheyAreAskedFor) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 30));
  for (const int step : {10, 20, 30}) {
    v1::WorkerMessage message;
    v1::JobReport& report = *message.mutable_job_report();
    report.set_job_uid(job.uid());
    report.set_epoch(job.epoch());
    report.mutable_eval()->set_step(step);
    report.mutable_eval()->set_split("valid");
    auto& sample = *report.mutable_eval()->add_samples();
    sample.set_prompt("once");
    sample.set_text(std::string(900'000, 'x'));
    Report(worker, message);
  }
  EXPECT_EQ(Get(job.uid()).last_eval().step(), 30);
  EXPECT_EQ(Get(job.uid()).last_eval().samples_size(), 0) << "a job is small";
  v1::QueryHistoryRequest request;
  request.mutable_job()->set_uid(job.uid());
  const auto steps = [&] {
    auto answer = core_->api().streams().QueryHistory(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    v1::History history;
    (*answer)(&history);
    std::vector<int64_t> out = {history.steps_size()};
    for (const v1::EvalRecord& eval : history.evals()) {
      out.push_back(eval.step());
      EXPECT_EQ(eval.samples_size(), request.samples() ? 1 : 0);
    }
    return out;
  };
  EXPECT_EQ(steps(), (std::vector<int64_t>{30, 10, 20, 30}));
  request.set_samples(true);
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 20, 30})) << "three would be 2.7 MB";
  request.set_from_step(10);
  request.set_to_step(10);
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 10}));
}

}  // namespace
}  // namespace mt::daemon
