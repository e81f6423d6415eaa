// Orphaned ranks are taken over where their job allows it, whole, and a job that is not known is
// rebuilt from its assignment.
#include "tests/daemon/keeper/orphans_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

TEST_F(OrphansTest, AHigherEpochThanTheLedgersIsAdoptedNotKilled) {
  Worker worker = NewWorker("n1", 1);
  v1::Job job = StartRunning(worker, "demo", 1);
  job.set_epoch(job.epoch() + 1);
  Report(worker, StepsMessage(job, 1, 5));
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  core_->sessions().OnClosed(worker.session);
  Worker restarted = Return("n1", 1, {HeldElsewhere(job.uid(), job.epoch(), 1, {0})});
  EXPECT_EQ(Get(job.uid()).epoch(), job.epoch());
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  ASSERT_EQ(Events("JobAdopted").size(), 1u);
  // The kill of the epoch before finds nothing.
  ASSERT_LE(CountCommands(restarted, v1::Command::KILL), 1);
  EXPECT_NE(LastCommand(restarted, v1::Command::KILL).epoch(), job.epoch());
  EXPECT_TRUE(Orphans().empty());
  Report(restarted, StepsMessage(job, 6, 7));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 7);
}

TEST_F(OrphansTest, AWorldThatIsNotWholeWaitsForTheRest) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = Submit(TinyJob("demo", 2));
  Accept(a, job);
  Accept(b, job);
  Report(a, RankMessage(job, 0, v1::TRAINING));
  Report(b, RankMessage(job, 1, v1::TRAINING));
  core_->sessions().OnClosed(a.session);
  core_->sessions().OnClosed(b.session);
  const int64_t epoch = job.epoch() + 4;
  Worker a2 = Return("a", 1, {HeldElsewhere(job.uid(), epoch, 2, {0})});
  EXPECT_EQ(Get(job.uid()).epoch(), job.epoch());
  EXPECT_NE(Get(job.uid()).state(), v1::FAILED) << "its earlier ranks are not missed";
  ASSERT_EQ(Orphans().size(), 1u);
  EXPECT_EQ(Orphans()[0].why(), "rank 1 of 2 is on no node that was heard");
  Worker b2 = Return("b", 1, {HeldElsewhere(job.uid(), epoch, 2, {1})});
  EXPECT_EQ(Get(job.uid()).epoch(), epoch);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).ranks(1).node(), "b");
  EXPECT_TRUE(Orphans().empty());
}

TEST_F(OrphansTest, OnlyTheNewestEpochIsAdopted) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1);
  core_->sessions().OnClosed(a.session);
  // Rank 1 of the newest epoch is not heard yet: the one between is whole, and over.
  Worker b = Return("b", 2, {HeldElsewhere(job.uid(), FirstTerm(9), 2, {0})});
  Worker c = Return("c", 2, {HeldElsewhere(job.uid(), FirstTerm(5), 1, {0})});
  EXPECT_EQ(Get(job.uid()).epoch(), job.epoch());
  EXPECT_EQ(CountCommands(c, v1::Command::KILL), 0);
  Worker d = Return("d", 2, {HeldElsewhere(job.uid(), FirstTerm(9), 2, {1})});
  EXPECT_EQ(Get(job.uid()).epoch(), FirstTerm(9));
  EXPECT_EQ(CountCommands(c, v1::Command::KILL), 1) << "closed now";
  EXPECT_EQ(CountCommands(b, v1::Command::KILL), 0);
}

TEST_F(OrphansTest, ANodeWithoutTheEarlierRanksFailsNoJobThatWasFoundElsewhere) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1);
  core_->sessions().OnClosed(a.session);
  Return("b", 1, {HeldElsewhere(job.uid(), FirstTerm(5), 2, {0})});
  Return("a", 1, {});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Row(job.uid(), FirstTerm(1), "a"), nullptr);
  Return("c", 1, {HeldElsewhere(job.uid(), FirstTerm(5), 2, {1})});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).epoch(), FirstTerm(5));
}

TEST_F(OrphansTest, HeldRanksStayHeldAndAJobThatIsToHoldHolds) {
  Worker a = NewWorker("a", 1);
  const v1::Job held = StartRunning(a, "held", 1);
  core_->sessions().OnClosed(a.session);
  Return("a", 1, {HeldElsewhere(held.uid(), FirstTerm(5), 1, {0}, v1::HELD)});
  EXPECT_EQ(Get(held.uid()).state(), v1::PAUSED_HELD) << "nobody knows who paused it";
  EXPECT_EQ(Get(held.uid()).goal(), v1::GOAL_HOLD);

  Worker b = NewWorker("b", 1);
  const v1::Job hold = StartRunning(b, "hold", 1);
  const auto pause = Pause(hold.uid(), v1::PauseRequest::HOLD);
  core_->sessions().OnClosed(b.session);
  Worker b2 = Return("b", 1, {HeldElsewhere(hold.uid(), FirstTerm(5), 1, {0}, v1::TRAINING)});
  EXPECT_EQ(Get(hold.uid()).goal(), v1::GOAL_HOLD);
  const v1::Command told = LastCommand(b2, v1::Command::HOLD);
  ASSERT_EQ(told.epoch(), FirstTerm(5));
  Report(b2, RankMessage(Get(hold.uid()), 0, v1::HELD));
  Report(b2, DoneMessage(told, 3, 3));
  EXPECT_EQ(Get(hold.uid()).state(), v1::PAUSED_HELD);
  EXPECT_TRUE(Op(pause->name()).done());
}

TEST_F(OrphansTest, AJobThatStopsGoesOnStopping) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1);
  ASSERT_TRUE(Cancel(job.uid(), /*save=*/true).ok());
  core_->sessions().OnClosed(a.session);
  Worker again = Return("a", 1, {HeldElsewhere(job.uid(), FirstTerm(5), 1, {0})});
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(Get(job.uid()).epoch(), FirstTerm(5));
  EXPECT_EQ(LastCommand(again, v1::Command::STOP_WITH_SAVE).epoch(), FirstTerm(5));
  Gone(again, Get(job.uid()));
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
}

TEST_F(OrphansTest, AReleasedOrQueuedJobGoesOnWhereItIsFoundAtWork) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  Gone(a, job);
  ASSERT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  core_->sessions().OnClosed(a.session);
  // Its own epoch is closed.
  Worker same = Return("a", 1, {HeldElsewhere(job.uid(), job.epoch(), 1, {0})});
  EXPECT_EQ(CountCommands(same, v1::Command::KILL), 1);
  Gone(same, job);
  core_->sessions().OnClosed(same.session);
  Worker higher = Return("a", 1, {HeldElsewhere(job.uid(), FirstTerm(5), 1, {0})});
  EXPECT_EQ(CountCommands(higher, v1::Command::KILL), 0);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_RUN);
  const v1::Job queued = Submit(TinyJob("queued", 1));
  ASSERT_EQ(queued.state(), v1::QUEUED);
  Return("b", 1, {HeldElsewhere(queued.uid(), FirstTerm(3), 1, {0}, v1::SPAWNED)});
  EXPECT_EQ(Get(queued.uid()).state(), v1::STARTING);
  EXPECT_EQ(ConditionsOf(Get(queued.uid())), "");
}

TEST_F(OrphansTest, AnUnknownJobIsRebuiltFromItsAssignment) {
  const v1::JobSpec spec = TinyJob("elsewhere", 2, "resilience: {deadline: 1h}\n");
  const v1::HeldAllocation one = HeldElsewhere("unknown-uid", 3, 2, {0});
  const v1::HeldAllocation two = HeldElsewhere("unknown-uid", 3, 2, {1});
  EXPECT_EQ(rpc::ReasonOf(Adopt("unknown-uid").status()), "UNKNOWN_JOB");
  EXPECT_EQ(rpc::ReasonOf(Adopt("").status()), "INVALID_REQUEST");
  Worker a = Return("a", 1, {one});
  EXPECT_NE(base::Message(Adopt("unknown-uid").status()).find("rank 1 of 2"), std::string::npos);
  Worker b = Return("b", 1, {two});
  EXPECT_NE(base::Message(Adopt("unknown-uid").status()).find("has not come"), std::string::npos);
  const int64_t created_us = core_->ledger().NowMicros() - 1'000'000;
  ReportHeld(a, {WithAssign(one, spec, created_us)});
  EXPECT_EQ(Orphans()[0].why(), "this store does not know the job (mtctl adopt rebuilds it)");
  Report(a, RankMessage(
                [] {
                  v1::Job job;
                  job.set_uid("unknown-uid");
                  job.set_epoch(3);
                  return job;
                }(),
                0, v1::HELD));
  const auto job = Adopt("", "elsewhere");
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::Job now = Get("unknown-uid");
  EXPECT_EQ(now.name(), "elsewhere");
  EXPECT_EQ(now.namespace_(), "team");
  EXPECT_EQ(now.created_us(), created_us);
  EXPECT_EQ(now.deadline_us(), created_us + 3'600'000'000LL);
  EXPECT_EQ(now.epoch(), 3);
  EXPECT_EQ(core_->ledger().FindJob("unknown-uid")->restart(), "token");
  EXPECT_EQ(now.slots(), 2);
  EXPECT_EQ(now.ranks(0).state(), v1::HELD) << "the newest report";
  EXPECT_EQ(now.ranks(1).node(), "b");
  EXPECT_EQ(now.state(), v1::RUNNING);
  EXPECT_EQ(CountCommands(a, v1::Command::RESUME), 1) << "one that holds goes on with the others";
  EXPECT_TRUE(Orphans().empty());
  EXPECT_EQ(Events("JobAdopted")[0].actor(), "operator");
  EXPECT_EQ(rpc::ReasonOf(Adopt("unknown-uid").status()), "UNKNOWN_JOB") << "no orphan any more";
}

TEST_F(OrphansTest, AnAdoptionIsRefusedWhereTheNameIsTakenOrTheJobIsClosed) {
  const v1::HeldAllocation held = HeldElsewhere("unknown-uid", 3, 1, {0});
  v1::JobSpec spec = TinyJob("elsewhere", 1);
  Worker a = Return("a", 1, {held});
  v1::HeldAllocation assigned = WithAssign(held, spec);
  assigned.mutable_assign()->set_namespace_("default");
  ReportHeld(a, {assigned});
  const v1::Job other = Submit(spec);
  EXPECT_EQ(rpc::ReasonOf(Adopt("unknown-uid").status()), "NAME_IN_USE");
  ASSERT_TRUE(Kill(other.uid()).ok());
  // A final job, and the trace of a deleted one.
  Worker b = NewWorker("b", 1);
  const v1::Job ended = StartRunning(b, "ended", 1);
  ASSERT_TRUE(Kill(ended.uid()).ok());
  Gone(b, ended);
  core_->sessions().OnClosed(b.session);
  Return("b", 1, {HeldElsewhere(ended.uid(), FirstTerm(5), 1, {0})});
  EXPECT_EQ(rpc::ReasonOf(Adopt(ended.uid()).status()), "WRONG_STATE");
  EXPECT_NE(base::Message(Adopt(ended.uid()).status()).find("CANCELLED"), std::string::npos);
  ASSERT_TRUE(Delete(ended.uid()).ok());
  EXPECT_NE(base::Message(Adopt(ended.uid()).status()).find("deleted"), std::string::npos);
  EXPECT_TRUE(Adopt("unknown-uid").ok());
}

TEST_F(OrphansTest, ASilentNodesOrphansAreNotAdoptedAndStayOrphans) {
  const v1::HeldAllocation held = HeldElsewhere("unknown-uid", 3, 1, {0});
  Worker a = Return("a", 1, {held});
  ReportHeld(a, {WithAssign(held, TinyJob("elsewhere", 1))});
  PassBeating(seconds(32), {});
  EXPECT_TRUE(IsOrphan("unknown-uid", 3, "a"));
  EXPECT_NE(base::Message(Adopt("unknown-uid").status()).find("node a is not heard"),
            std::string::npos);
  StartCore();
  EXPECT_TRUE(IsOrphan("unknown-uid", 3, "a"));
  Return("a", 1, {held});
  EXPECT_TRUE(Adopt("unknown-uid").ok()) << "the assignment was kept";
}

// An old store: what it says of a node is of the past, and no reason to fail a job.
TEST_F(OrphansTest, WhileARestoreIsNotSettledAMissingAllocationFailsNoJob) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1);
  core_->ledger().Cluster().set_restored_term(7);
  core_->ledger().Cluster().set_restore_settled(false);
  core_->sessions().OnClosed(a.session);
  Worker again = Return("a", 1, {});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  Return("b", 1, {HeldElsewhere(job.uid(), FirstTerm(5), 1, {0})});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).epoch(), FirstTerm(5));
}

}  // namespace
}  // namespace mt::daemon
