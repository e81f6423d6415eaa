// The way of a job whose checkpoint is gone: out of its start, back into the queue, behind all
// others, and on.
#include "tests/daemon/keeper/bases_rig.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

TEST_F(BasesTest, WhatIsMissingIsWaitedForAndTheResumeFails) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  const auto resume = Resume(job.uid());
  ASSERT_TRUE(resume.ok());
  v1::Job now = Get(job.uid());
  Accept(worker, now);
  Report(worker, MissingMessage(now));
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING) << "its ranks must be gone first";
  EXPECT_EQ(Get(job.uid()).stopping_to(), v1::QUEUED);
  EXPECT_EQ(Op(resume->name()).error().reason(), kReason);
  PassBeating(seconds(2), {&worker});
  EXPECT_EQ(Get(job.uid()).epoch(), now.epoch()) << "nothing is placed before";
  Gone(worker, now);
  ExpectWaits(job.uid());
  const auto events = Events("ExpectedCheckpointMissing");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].node(), "a");
  EXPECT_TRUE(Events("RankFailed").empty()) << "it is no failure of the job";
}

// A rank's data are gone under it, or were not there when it started.
v1::WorkerMessage DataMissingMessage(const v1::Job& job, v1::Cause cause) {
  v1::WorkerMessage message = RankMessage(job, 0, v1::FAULTED);
  v1::RankReport& report = *message.mutable_rank_report();
  report.set_cause(cause);
  report.set_reason("DATA_MISSING");
  report.mutable_status()->set_exited(true);
  report.mutable_status()->set_exit_code(cause == v1::STORAGE ? 73 : 64);
  report.mutable_status()->set_message("/data/text.bin: 0 bytes, but it had 84");
  return message;
}

TEST_F(BasesTest, DataThatAreGoneUnderAJobAreWaitedForAsOftenAsTheyAreNotThere) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1);
  Report(worker, StepsMessage(job, 1, 20));
  Save(worker, job, 20);
  const auto save = Checkpoint(job.uid());
  ASSERT_TRUE(save.ok()) << save.status();
  Report(worker, DataMissingMessage(job, v1::STORAGE));
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(Get(job.uid()).stopping_to(), v1::QUEUED);
  EXPECT_TRUE(Op(save->name()).done()) << "its ranks do not save any more";
  EXPECT_EQ(Op(save->name()).error().reason(), "RANKS_LOST");
  Gone(worker, job);
  for (int start = 0; start < 2; ++start) {
    const v1::Job waiting = Get(job.uid());
    EXPECT_EQ(waiting.state(), v1::QUEUED);
    ASSERT_EQ(ConditionsOf(waiting), "Waiting");
    EXPECT_TRUE(waiting.conditions(0).message().starts_with("DataMissing: /data/text.bin: 0 bytes"))
        << waiting.conditions(0).message();
    PassBeating(seconds(30), {&worker});
    const v1::Job placed = Get(job.uid());
    ASSERT_EQ(placed.state(), v1::ADMITTED);
    EXPECT_EQ(LastAssign(worker).base().step(), 20);
    if (start > 0) break;
    Accept(worker, placed);
    Report(worker, DataMissingMessage(placed, v1::USER_ERROR));
    Gone(worker, placed);
  }
  const auto events = Events("DataMissing");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].cause(), v1::STORAGE);
  EXPECT_TRUE(Events("RankFailed").empty());
  Start(worker, job.uid(), 20);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
}

TEST_F(BasesTest, AJobThatHasNeverReadItsDataFailsWithoutThem) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Submit(TinyJob("job", 1));
  Accept(worker, job);
  Report(worker, DataMissingMessage(job, v1::USER_ERROR));
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(job.uid()).cause(), v1::USER_ERROR);
}

TEST_F(BasesTest, ItIsTriedAgainWithGrowingPauses) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  int64_t epoch = Get(job.uid()).epoch();
  for (const int wait : {5, 10, 20, 40}) {
    Miss(worker, job.uid());
    ExpectWaits(job.uid());
    PassBeating(seconds(wait - 3), {&worker});
    EXPECT_EQ(Get(job.uid()).epoch(), epoch) << wait;
    PassBeating(seconds(4), {&worker});
    EXPECT_EQ(Get(job.uid()).epoch(), ++epoch) << wait;
  }
  EXPECT_EQ(Events("ExpectedCheckpointMissing").size(), 1U) << "that it waits is told once";
  Start(worker, job.uid(), 20);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, Get(job.uid()));
  ASSERT_TRUE(Resume(job.uid()).ok());
  Miss(worker, job.uid());
  EXPECT_EQ(Events("ExpectedCheckpointMissing").size(), 2U);
}

TEST_F(BasesTest, ItWaitsOnAfterARestart) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  Miss(worker, job.uid());
  StartCore();
  ExpectWaits(job.uid());
  Connect(&worker, 1);
  EXPECT_EQ(LastAssign(worker).base().step(), 20);
}

TEST_F(BasesTest, OthersOvertakeAJobThatWaitsForItsCheckpoint) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20}, "priority: 9\n");
  ASSERT_TRUE(Resume(job.uid()).ok());
  Miss(worker, job.uid());
  // The slot goes to the job of lower priority that came later, and while it is taken nobody waits
  // behind the one that waits for its checkpoint.
  const v1::Job later = Submit(TinyJob("later", 1));
  EXPECT_EQ(later.state(), v1::ADMITTED);
  const v1::Job last = Submit(TinyJob("last", 1));
  PassBeating(seconds(20), {&worker});
  ExpectWaits(job.uid());
  EXPECT_EQ(Get(last.uid()).message(), "needs 1 CPU slot, 0 of 1 are free");
  // Both had their time to retry: the other one is first all the same.
  ASSERT_TRUE(Cancel(later.uid(), false).ok());
  Gone(worker, later);
  EXPECT_EQ(Get(last.uid()).state(), v1::ADMITTED);
  ExpectWaits(job.uid());
  ASSERT_TRUE(Cancel(last.uid(), false).ok());
  Gone(worker, Get(last.uid()));
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
}

TEST_F(BasesTest, AJobThatMayGoOnFromLessHasItsPlaceAgain) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  Miss(worker, job.uid());
  const v1::Job other = Submit(TinyJob("other", 1));
  ASSERT_TRUE(ResumeFrom(job.uid(), /*allow_older=*/true, false).ok());
  EXPECT_EQ(Get(job.uid()).message(), "needs 1 CPU slot, 0 of 1 are free");
  const v1::Job last = Submit(TinyJob("last", 1));
  EXPECT_EQ(last.message(), "job 'job' is ahead in the queue");
}

TEST_F(BasesTest, AResumeWithoutAWordIsRefusedWhereTheJobIsToRunAlready) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  Miss(worker, job.uid());
  EXPECT_EQ(rpc::ReasonOf(Resume(job.uid()).status()), "WRONG_STATE");
}

TEST_F(BasesTest, AWaitingJobPausesAndEnds) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  Miss(worker, job.uid());
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED) << "a resume tries at once";
  Miss(worker, job.uid());
  ASSERT_TRUE(Cancel(job.uid(), false).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
}

TEST_F(BasesTest, AUserMayEndItWhileItsRanksGo) {
  Worker worker = NewWorker("a", 1);
  for (const bool kill : {false, true}) {
    const v1::Job job = Released(worker, {20});
    ASSERT_TRUE(Resume(job.uid()).ok());
    Accept(worker, Get(job.uid()));
    Report(worker, MissingMessage(Get(job.uid())));
    ASSERT_TRUE(kill ? Kill(job.uid()).ok() : Cancel(job.uid(), false).ok());
    Gone(worker, Get(job.uid()));
    EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  }
}

TEST_F(BasesTest, AResumeWhileItsRanksGoIsTakenIn) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  const v1::Job starting = Get(job.uid());
  Accept(worker, starting);
  Report(worker, MissingMessage(starting));
  const auto resume = ResumeFrom(job.uid(), false, /*fresh=*/true);
  ASSERT_TRUE(resume.ok()) << resume.status();
  Gone(worker, starting);
  ASSERT_EQ(Get(job.uid()).state(), v1::ADMITTED) << "nothing is waited for any more";
  EXPECT_TRUE(LastAssign(worker).spec().checkpoint().fresh());
  Start(worker, job.uid(), 0);
  EXPECT_EQ(Op(resume->name()).result(), "RUNNING");
}

// The ranks of another node only know that rank 0 left, and may be heard first.
TEST_F(BasesTest, TheCauseStandsWhoeverIsHeardFirst) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  v1::Job job = Submit(TinyJob("job", 2));
  Accept(a, job);
  Accept(b, job);
  for (int rank = 0; rank < 2; ++rank) Report(rank == 0 ? a : b, RankMessage(job, rank, v1::READY));
  Save(a, job, 20);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(a, job);
  Gone(b, job);
  for (const bool consequence_first : {true, false}) {
    ASSERT_TRUE(Resume(job.uid()).ok());
    job = Get(job.uid());
    Accept(a, job);
    Accept(b, job);
    v1::WorkerMessage left = RankMessage(job, 1, v1::FAULTED);
    left.mutable_rank_report()->set_cause(v1::NETWORK);
    left.mutable_rank_report()->mutable_status()->set_exited(true);
    left.mutable_rank_report()->mutable_status()->set_exit_code(75);
    if (consequence_first) Report(b, left);
    Report(a, MissingMessage(job));
    if (!consequence_first) Report(b, left);
    EXPECT_EQ(Get(job.uid()).stopping_to(), v1::QUEUED);
    Gone(b, job);
    Gone(a, job);
    ExpectWaits(job.uid());
    EXPECT_EQ(Events("RankFailed").size(), 1U) << "of the consequence that came first";
    ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  }
}

TEST_F(BasesTest, AFailureOfItsOwnStands) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  const v1::Job now = Get(job.uid());
  Accept(worker, now);
  v1::WorkerMessage crash = RankMessage(now, 0, v1::FAULTED);
  crash.mutable_rank_report()->mutable_status()->set_exited(true);
  crash.mutable_rank_report()->mutable_status()->set_exit_signal(11);
  Report(worker, crash);
  Report(worker, MissingMessage(now));
  Gone(worker, now);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
}

}  // namespace
}  // namespace mt::daemon
