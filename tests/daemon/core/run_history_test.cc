// One history per run: over the jobs that went on with it, with its attempts, as long as one of its
// jobs is there.
#include <algorithm>
#include <filesystem>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/core/history_core_fixture.h"
#include "tests/daemon/core/run_rig.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunHistoryTest : public RunRig<HistoryCoreTest> {
 protected:
  bool HasFile(const std::string& uid) { return fs::exists(folder_ + "/history/" + uid + ".runs"); }
  static std::vector<int> Repeat(std::vector<std::pair<int, int>> parts) {
    std::vector<int> out;
    for (const auto& [attempt, count] : parts)
      out.insert(out.end(), static_cast<size_t>(count), attempt);
    return out;
  }
};

// The case: 30 steps, the same file submitted again, 60 in all.
TEST_F(RunHistoryTest, AJobThatIsSubmittedAgainShowsTheRun) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = SubmitAndBegin(worker, "tiny", "run-a", 0);
  EXPECT_EQ(first.attempt(), 1);
  Train(worker, first, 1, 30);
  Save(worker, first, 30);
  Finish(worker, first, 30);
  const v1::Job again = SubmitAndBegin(worker, "tiny", "run-a", 30);
  EXPECT_EQ(again.attempt(), 2);
  EXPECT_EQ(again.resumed_checkpoint().step(), 30);
  EXPECT_THAT(again.resumed_checkpoint().path(), HasSubstr("/c/tiny/step-30"));
  EXPECT_EQ(StepsOf(HistoryOf(again.uid())), Range(1, 30)) << "before its first step";
  Train(worker, again, 31, 60);
  v1::QueryHistoryRequest request;
  request.mutable_job()->set_name("tiny");
  const auto history = Ask(request);
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(StepsOf(*history), Range(1, 60));
  EXPECT_EQ(AttemptsOf(*history), Repeat({{1, 30}, {2, 30}}));
  EXPECT_EQ(history->first_step(), 1);
  EXPECT_EQ(history->last_step(), 60);
  EXPECT_EQ(history->own_from_step(), 30);
  ASSERT_EQ(history->runs_size(), 2);
  EXPECT_EQ(history->runs(0).job_uid(), first.uid());
  EXPECT_EQ(history->runs(1).job_uid(), again.uid());
  EXPECT_EQ(history->runs(1).attempt(), 2);
  for (const int limit : {1, 7, 30, 100}) {
    const auto walked = Walk(again.uid(), limit);
    ASSERT_EQ(walked.size(), 60U) << limit;
    EXPECT_EQ(walked.front(), std::pair(int64_t{1}, 1));
    EXPECT_EQ(walked[30], std::pair(int64_t{31}, 2));
  }
  EXPECT_EQ(StepsOf(HistoryOf(again.uid(), 1)), Range(1, 30));
  EXPECT_EQ(StepsOf(HistoryOf(again.uid(), 2)), Range(31, 60));
  EXPECT_EQ(StepsOf(HistoryOf(first.uid())), Range(1, 30)) << "the run as of its first job";
  EXPECT_EQ(StepsOf(HistoryOf(first.uid(), 2)), Range(31, 60));
  request.set_attempt(3);
  const auto none = Ask(request);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(base::Message(none.status()), HasSubstr("has 2 attempts"));
  request.set_attempt(-1);
  EXPECT_EQ(rpc::ReasonOf(Ask(request).status()), "INVALID_REQUEST");
  // A save of its own replaces what it went on from.
  Save(worker, again, 60);
  EXPECT_FALSE(Get(again.uid()).has_resumed_checkpoint());
  // As after SIGKILL.
  Flush();
  Restart();
  EXPECT_EQ(StepsOf(HistoryOf(again.uid())), Range(1, 60));
}

TEST_F(RunHistoryTest, StepsThatAreTrainedAgainAreTheLaterAttempts) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = SubmitAndBegin(worker, "tiny", "run-a", 0);
  Train(worker, first, 1, 35);
  Save(worker, first, 30);
  Fail(worker, first);
  const v1::Job again = SubmitAndBegin(worker, "other", "run-a", 30);
  EXPECT_EQ(again.attempt(), 2) << "of any name";
  Train(worker, again, 31, 33);
  EXPECT_EQ(StepsOf(HistoryOf(again.uid())), Range(1, 33));
  EXPECT_EQ(AttemptsOf(HistoryOf(again.uid())), Repeat({{1, 30}, {2, 3}}));
  EXPECT_EQ(StepsOf(HistoryOf(again.uid(), 1)), Range(1, 35));
  EXPECT_EQ(StepsOf(HistoryOf(first.uid())), Range(1, 35));
}

TEST_F(RunHistoryTest, PlacementsOfOneJobAreAttemptsToo) {
  Worker worker = NewWorker("n1", 1);
  v1::Job job = SubmitAndBegin(worker, "tiny", "run-a", 0);
  Train(worker, job, 1, 10);
  Release(worker, job, 10);
  ASSERT_TRUE(Resume(job.uid()).ok());
  job = Begin(worker, job.uid(), RunOf("run-a"), 10);
  EXPECT_EQ(job.attempt(), 2);
  Train(worker, job, 11, 20);
  EXPECT_EQ(AttemptsOf(HistoryOf(job.uid())), Repeat({{1, 10}, {2, 10}}));
  EXPECT_EQ(StepsOf(HistoryOf(job.uid(), 2)), Range(11, 20));
  EXPECT_EQ(HistoryOf(job.uid()).own_from_step(), 0);
  // Another job trains the run on while it waits, and then it goes on itself.
  Release(worker, job, 20);
  const v1::Job other = SubmitAndBegin(worker, "other", "run-a", 20);
  Train(worker, other, 21, 25);
  Save(worker, other, 25);
  Finish(worker, other, 25);
  ASSERT_TRUE(Resume(job.uid()).ok());
  job = Begin(worker, job.uid(), RunOf("run-a"), 25);
  Train(worker, job, 26, 30);
  EXPECT_EQ(job.attempt(), 4);
  EXPECT_EQ(StepsOf(HistoryOf(job.uid())), Range(1, 30));
  EXPECT_EQ(AttemptsOf(HistoryOf(job.uid())), Repeat({{1, 10}, {2, 10}, {3, 5}, {4, 5}}));
}

TEST_F(RunHistoryTest, AnotherRunOfTheNameIsNotShown) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = SubmitAndBegin(worker, "tiny", "run-a", 0);
  Train(worker, first, 1, 10);
  Save(worker, first, 10);
  Finish(worker, first, 10);
  v1::Run fresh = RunOf("run-b");
  fresh.set_beginning("load 10");
  fresh.set_from_run("run-a");
  fresh.set_from_digest("xxh3:aa");
  const v1::Job job = Begin(worker, Submit(TinyJob("tiny", 1)).uid(), fresh, 10);
  Train(worker, job, 11, 15);
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(job.resumed_checkpoint().step(), 10);
  EXPECT_EQ(StepsOf(HistoryOf(job.uid())), Range(11, 15));
}

TEST_F(RunHistoryTest, JobsFromBeforeRunsHadIdsAreFoundByNameAndDirectory) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job cold = SubmitAndBegin(worker, "tiny", "", 0);
  Train(worker, cold, 1, 50);
  Finish(worker, cold, 50);
  const v1::Job first = SubmitAndBegin(worker, "tiny", "", 0);
  Train(worker, first, 1, 12, 7);
  Save(worker, first, 10);
  Fail(worker, first);
  const v1::Job second = SubmitAndBegin(worker, "tiny", "", 10);
  Train(worker, second, 11, 20, 7);
  EXPECT_EQ(second.attempt(), 0);
  EXPECT_EQ(second.resumed_checkpoint().step(), 10);
  const v1::History history = HistoryOf(second.uid());
  EXPECT_EQ(StepsOf(history), Range(1, 20));
  EXPECT_EQ(AttemptsOf(history), Repeat({{1, 10}, {2, 10}}));
  EXPECT_EQ(StepsOf(HistoryOf(second.uid(), 1)), Range(1, 12));
  Save(worker, second, 20);
  Finish(worker, second, 20);
  // The ranks of the next one tell the run, which has begun before.
  const v1::Job told = SubmitAndBegin(worker, "tiny", "run-a", 20);
  Train(worker, told, 21, 25);
  EXPECT_EQ(StepsOf(HistoryOf(told.uid())), Range(1, 25));
}

// No point of a coarse answer holds a step that was trained again.
TEST_F(RunHistoryTest, CoarsePointsEndWhereTheRunWentOn) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = SubmitAndBegin(worker, "tiny", "run-a", 0);
  for (int64_t step = 1; step <= 3'000; step += 500) Train(worker, first, step, step + 499, 1);
  Save(worker, first, 2'345);
  Fail(worker, first);
  const v1::Job again = SubmitAndBegin(worker, "tiny", "run-a", 2'345);
  for (int64_t step = 2'346; step <= 5'345; step += 500) Train(worker, again, step, step + 499, 2);
  for (const int points : {3, 10, 50, 200, 5'000}) {
    v1::QueryHistoryRequest request;
    request.mutable_job()->set_uid(again.uid());
    request.set_points(points);
    request.add_names("loss");
    const auto history = Ask(request);
    ASSERT_TRUE(history.ok()) << history.status();
    ASSERT_EQ(history->columns_size(), 1);
    EXPECT_LE(history->steps_size(), points == 5'000 ? 5'345 : points);
    EXPECT_GT(history->steps_size(), points / 8);
    EXPECT_TRUE(std::ranges::adjacent_find(history->steps(), std::greater_equal<>()) ==
                history->steps().end())
        << points;
    EXPECT_EQ(*history->steps().rbegin(), 5'345);
    for (int i = 0; i < history->steps_size(); ++i) {
      const int64_t step = history->steps(i);
      EXPECT_EQ(history->columns(0).last(i), step <= 2'345 ? 1 : 2) << step;
      EXPECT_EQ(history->attempts(i), step <= 2'345 ? 1 : 2) << step;
      if (history->level() == 0) continue;
      if (step <= 2'345) {
        EXPECT_EQ(history->columns(0).max(i), 1) << step;
      } else if (i > 0 && history->steps(i - 1) >= 2'345) {
        EXPECT_EQ(history->columns(0).min(i), 2) << step;
      }
    }
  }
  EXPECT_EQ(Walk(again.uid(), 999).size(), 5'345U);
}

TEST_F(RunHistoryTest, AHistoryGoesWithTheLastJobOfItsRun) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = SubmitAndBegin(worker, "tiny", "run-a", 0);
  Train(worker, first, 1, 10);
  Save(worker, first, 10);
  Finish(worker, first, 10);
  const v1::Job again = SubmitAndBegin(worker, "tiny", "run-a", 10);
  Train(worker, again, 11, 20);
  Finish(worker, again, 20);
  Flush();
  ASSERT_TRUE(Delete(first.uid()).ok());
  EXPECT_EQ(StepsOf(HistoryOf(again.uid())), Range(1, 20));
  EXPECT_EQ(AttemptsOf(HistoryOf(again.uid())), Repeat({{1, 10}, {2, 10}}));
  EXPECT_TRUE(HasFile(first.uid()));
  ASSERT_TRUE(Delete(again.uid()).ok());
  EXPECT_FALSE(HasFile(first.uid()));
  EXPECT_FALSE(HasFile(again.uid()));
  // Its checkpoints may still be there, and the run goes on: it is counted on.
  const v1::Job later = SubmitAndBegin(worker, "tiny", "run-a", 20);
  EXPECT_EQ(later.attempt(), 3);
  Train(worker, later, 21, 25);
  EXPECT_EQ(StepsOf(HistoryOf(later.uid())), Range(21, 25));
}

TEST_F(RunHistoryTest, WhatADeletedJobLeftOutlivesARestart) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = SubmitAndBegin(worker, "tiny", "run-a", 0);
  Train(worker, first, 1, 10);
  Save(worker, first, 10);
  Finish(worker, first, 10);
  const v1::Job again = SubmitAndBegin(worker, "tiny", "run-a", 10);
  Train(worker, again, 11, 20);
  Finish(worker, again, 20);
  const v1::Job alone = SubmitAndBegin(worker, "alone", "run-b", 0);
  Train(worker, alone, 1, 5);
  Finish(worker, alone, 5);
  Flush();
  ASSERT_TRUE(Delete(first.uid()).ok());
  ASSERT_TRUE(Delete(alone.uid()).ok());
  EXPECT_FALSE(HasFile(alone.uid()));
  Restart();
  EXPECT_TRUE(HasFile(first.uid()));
  EXPECT_EQ(StepsOf(HistoryOf(again.uid())), Range(1, 20));
  ASSERT_TRUE(Delete(again.uid()).ok());
  Restart();
  EXPECT_FALSE(HasFile(first.uid()));
}

TEST_F(RunHistoryTest, ANameMeansTheNewestJobWithARunWhereThatIsAskedFor) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = SubmitAndBegin(worker, "tiny", "run-a", 0);
  Train(worker, job, 1, 10);
  Save(worker, job, 10);
  Finish(worker, job, 10);
  const v1::Job empty = FailAtOnce("tiny");
  v1::QueryHistoryRequest request;
  request.mutable_job()->set_name("tiny");
  EXPECT_EQ(Ask(request)->steps_size(), 0);
  request.mutable_job()->set_with_run(true);
  EXPECT_EQ(StepsOf(*Ask(request)), Range(1, 10));
  v1::GetJobRequest get;
  get.mutable_job()->set_name("tiny");
  v1::Job found;
  ASSERT_TRUE(core_->api().jobs().Get(get, &found).ok());
  EXPECT_EQ(found.uid(), empty.uid());
  get.mutable_job()->set_with_run(true);
  ASSERT_TRUE(core_->api().jobs().Get(get, &found).ok());
  EXPECT_EQ(found.uid(), job.uid());
  v1::ListCheckpointsRequest list;
  *list.mutable_job() = get.job();
  v1::ListCheckpointsResponse listed;
  ASSERT_TRUE(core_->api().jobs().ListCheckpoints(list, &listed).ok());
  EXPECT_EQ(listed.checkpoints_size(), 1);
  // Where no job of the name has one, it is the newest all the same.
  const v1::Job alone = FailAtOnce("alone");
  get.mutable_job()->set_name("alone");
  ASSERT_TRUE(core_->api().jobs().Get(get, &found).ok());
  EXPECT_EQ(found.uid(), alone.uid());
}

}  // namespace
}  // namespace mt::daemon
