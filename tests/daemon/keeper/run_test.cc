// The run of a job, as its ranks tell it: in the job, the store, the history and the events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/core/history_core_fixture.h"

namespace mt::daemon {
namespace {

using testing::HasSubstr;

class RunTest : public HistoryCoreTest {
 protected:
  // The ranks of the job's epoch are ready and train this run.
  void ReportRun(Worker& worker, const v1::Job& job, const v1::Run& run, bool begins,
                 int64_t from_step = 0) {
    v1::WorkerMessage message;
    message.mutable_job_report()->set_job_uid(job.uid());
    message.mutable_job_report()->set_epoch(job.epoch());
    v1::RunInfo* info = message.mutable_job_report()->mutable_run_info();
    info->set_resumed_from_step(from_step);
    *info->mutable_run() = run;
    info->set_run_begins(begins);
    Report(worker, std::move(message));
  }
  static v1::Run RunOf(const std::string& id, const std::string& beginning = "") {
    v1::Run run;
    run.set_id(id);
    run.set_beginning(beginning);
    return run;
  }
  // The job's next epoch, on the worker that it had.
  v1::Job PlaceAgain(Worker& worker, const std::string& uid) {
    EXPECT_TRUE(Pause(uid, v1::PauseRequest::RELEASE).ok());
    Gone(worker, Get(uid));
    EXPECT_TRUE(Resume(uid).ok());
    const v1::Job job = Get(uid);
    EXPECT_EQ(job.state(), v1::ADMITTED);
    Accept(worker, job);
    Report(worker, RankMessage(job, 0, v1::READY));
    return Get(uid);
  }
  v1::History HistoryOf(const std::string& uid) {
    v1::QueryHistoryRequest request;
    request.mutable_job()->set_uid(uid);
    auto answer = core_->api().streams().QueryHistory(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    v1::History history;
    (*answer)(&history);
    return history;
  }
};

TEST_F(RunTest, ABeginningIsToldOnceAndKept) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  EXPECT_FALSE(Get(job.uid()).has_run());
  ReportRun(worker, job, RunOf("run-a", "fresh"), /*begins=*/true);
  EXPECT_EQ(Get(job.uid()).run().id(), "run-a");
  auto events = Events("RunBegan");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].message(), "run run-a begins (fresh)");
  EXPECT_EQ(events[0].run(), "run-a");
  EXPECT_EQ(events[0].job_uid(), job.uid());
  // Its next epoch goes on with the same run, which is no news.
  const v1::Job again = PlaceAgain(worker, job.uid());
  ReportRun(worker, again, RunOf("run-a"), /*begins=*/false, 10);
  EXPECT_EQ(Events("RunBegan").size(), 1U);
  EXPECT_TRUE(Events("RunContinued").empty());
  EXPECT_EQ(Events().back().run(), "run-a") << "every event of the job carries it";
  // Killed and started again.
  Flush();
  core_.reset();
  history_.reset();
  StartCore();
  Restart();
  EXPECT_EQ(Get(job.uid()).run().id(), "run-a");
  const v1::History history = HistoryOf(job.uid());
  ASSERT_EQ(history.runs_size(), 2);
  EXPECT_EQ(history.runs(0).epoch(), job.epoch());
  EXPECT_EQ(history.runs(0).run(), "run-a");
  EXPECT_EQ(history.runs(0).from_step(), 0);
  EXPECT_EQ(history.runs(1).epoch(), again.epoch());
  EXPECT_EQ(history.runs(1).from_step(), 10);
}

// Each start tells what it has found: what was removed meanwhile is told no more.
TEST_F(RunTest, WhatOtherRunsHaveInItsDirectoryIsKeptWithIt) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::Run run = RunOf("run-b", "fresh");
  run.mutable_other_runs()->set_runs(1);
  run.mutable_other_runs()->set_checkpoints(2);
  run.mutable_other_runs()->set_bytes(4096);
  ReportRun(worker, job, run, /*begins=*/true);
  EXPECT_EQ(Get(job.uid()).run().other_runs().bytes(), 4096);
  const v1::Job again = PlaceAgain(worker, job.uid());
  ReportRun(worker, again, RunOf("run-b", "fresh"), /*begins=*/false, 10);
  EXPECT_FALSE(Get(job.uid()).run().has_other_runs());
}

TEST_F(RunTest, AJobThatTakesUpAnothersRunSaysSo) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  ReportRun(worker, job, RunOf("run-a"), /*begins=*/false, 30);
  const auto events = Events("RunContinued");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].message(), "run run-a goes on from step 30");
  EXPECT_EQ(events[0].step(), 30);
  EXPECT_TRUE(Events("RunBegan").empty());
}

TEST_F(RunTest, WhereARunComesFromIsTold) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::Run copy = RunOf("run-b");
  copy.set_parent("run-a");
  copy.set_from_run("run-a");
  copy.set_from_step(10);
  copy.set_from_digest("xxh3:aa");
  ReportRun(worker, job, copy, /*begins=*/true, 10);
  EXPECT_EQ(Get(job.uid()).run().parent(), "run-a");
  EXPECT_THAT(Events("RunBegan").back().message(), HasSubstr("copies of those of run run-a"));
  const v1::Job again = PlaceAgain(worker, job.uid());
  v1::Run loaded = RunOf("run-c", "load 10, weights");
  loaded.set_from_run("run-b");
  loaded.set_from_step(10);
  loaded.set_from_digest("xxh3:bb");
  ReportRun(worker, again, loaded, /*begins=*/true);
  EXPECT_EQ(Events("RunBegan").back().message(),
            "run run-c begins (load 10, weights) from step 10 of run run-b");
  v1::Run anew = RunOf("run-d");
  anew.set_restart("token");
  ReportRun(worker, PlaceAgain(worker, job.uid()), anew, /*begins=*/true);
  EXPECT_EQ(Events("RunBegan").back().message(), "run run-d begins on purpose");
}

// Ranks from before runs had ids.
TEST_F(RunTest, RanksThatTellNoneChangeNothing) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  ReportRun(worker, job, RunOf("run-a"), /*begins=*/true);
  const size_t events = Events().size();
  v1::WorkerMessage message;
  message.mutable_job_report()->set_job_uid(job.uid());
  message.mutable_job_report()->set_epoch(job.epoch());
  message.mutable_job_report()->mutable_run_info()->set_total_steps(7);
  Report(worker, std::move(message));
  EXPECT_EQ(Get(job.uid()).total_steps(), 7);
  EXPECT_EQ(Get(job.uid()).run().id(), "run-a");
  EXPECT_EQ(Events().size(), events);
  EXPECT_EQ(HistoryOf(job.uid()).runs_size(), 1);
}

}  // namespace
}  // namespace mt::daemon
