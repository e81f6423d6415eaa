// Ranks that the ledger does not know to be closed are nobody's to kill: they are kept as orphans
// and shown; only closed epochs, and what an operator names, are killed.
#include "tests/daemon/keeper/orphans_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

TEST_F(OrphansTest, RanksOfAnUnknownJobAreNotKilled) {
  Worker worker = Return("n1", 2, {HeldElsewhere("unknown-uid", 3, 1, {0})});
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  ASSERT_TRUE(IsOrphan("unknown-uid", 3, "n1"));
  EXPECT_EQ(Events("RanksOrphaned").size(), 1u);
  EXPECT_EQ(CountHeldRequests(worker, /*with_assign=*/true), 1);
  // Its slot is used; the other one is not.
  EXPECT_EQ(Submit(TinyJob("two", 2)).state(), v1::QUEUED);
  Connect(&worker, 2, {HeldElsewhere("unknown-uid", 3, 1, {0})});
  EXPECT_EQ(Events("RanksOrphaned").size(), 1u) << "once";
  // It ends by itself.
  v1::Job gone;
  gone.set_uid("unknown-uid");
  gone.set_epoch(3);
  Gone(worker, gone);
  EXPECT_EQ(Row("unknown-uid", 3, "n1"), nullptr);
}

TEST_F(OrphansTest, MessagesOfAnUnknownJobAskWhatTheNodeHolds) {
  Worker worker = NewWorker("n1", 1);
  v1::Job job;
  job.set_uid("unknown-uid");
  job.set_epoch(3);
  Report(worker, StepsMessage(job, 1, 5));
  Report(worker, RankMessage(job, 0, v1::TRAINING));
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  EXPECT_EQ(CountHeldRequests(worker, true), 1) << "once per session";
  ReportHeld(worker, {HeldElsewhere("unknown-uid", 3, 1, {0})});
  EXPECT_TRUE(IsOrphan("unknown-uid", 3, "n1"));
}

TEST_F(OrphansTest, OnlyClosedEpochsAreKilled) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  ASSERT_TRUE(Kill(job.uid()).ok());
  Gone(worker, job);
  ASSERT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  Worker late = Return("n2", 1, {HeldElsewhere(job.uid(), job.epoch(), 1, {0})});
  EXPECT_EQ(CountCommands(late, v1::Command::KILL), 1) << "this store ended it";
  Worker later = Return("n3", 1, {HeldElsewhere(job.uid(), job.epoch() + 1, 1, {0})});
  EXPECT_EQ(CountCommands(later, v1::Command::KILL), 0) << "this store never gave that epoch";
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  // A deleted job's epochs stay closed.
  Gone(late, job);
  ASSERT_TRUE(Delete(job.uid()).ok());
  StartCore();
  Worker deleted = Return("n2", 1, {HeldElsewhere(job.uid(), job.epoch(), 1, {0})});
  EXPECT_EQ(CountCommands(deleted, v1::Command::KILL), 1);
  Worker stays = Return("n3", 1, {HeldElsewhere(job.uid(), job.epoch() + 1, 1, {0})});
  EXPECT_EQ(CountCommands(stays, v1::Command::KILL), 0);
}

TEST_F(OrphansTest, RanksOfAPlacementThatFailedAreKilled) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  PassBeating(seconds(32), {});  // its answer never came
  ASSERT_EQ(Get(job.uid()).state(), v1::QUEUED);
  core_->ledger().EraseAllocation({job.uid(), job.epoch(), "a"});
  StartCore();
  Worker again = Return("a", 1, {HeldElsewhere(job.uid(), job.epoch(), 1, {0}, v1::SPAWNED)});
  EXPECT_EQ(CountCommands(again, v1::Command::KILL), 1);
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED) << "its slot is used until they are gone";
}

TEST_F(OrphansTest, OrphansEndWhenALaterEpochIsGiven) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = Submit(TinyJob("demo", 2));
  Accept(a, job);
  Accept(b, job);
  for (const char* node : {"a", "b"})
    core_->ledger().EraseAllocation({job.uid(), FirstTerm(1), node});
  PassBeating(seconds(60), {&a, &b});
  ASSERT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  // One of its ranks is there after all: not enough to go on with.
  core_->sessions().OnClosed(a.session);
  Worker again = Return("a", 1, {HeldElsewhere(job.uid(), FirstTerm(1), 2, {0})});
  EXPECT_EQ(CountCommands(again, v1::Command::KILL), 0);
  ASSERT_TRUE(IsOrphan(job.uid(), FirstTerm(1), "a"));
  Worker c = NewWorker("c", 1);
  ASSERT_TRUE(Resume(job.uid()).ok());
  ASSERT_EQ(Get(job.uid()).epoch(), FirstTerm(2));
  Settle();
  EXPECT_EQ(CountCommands(again, v1::Command::KILL), 1);
  EXPECT_EQ(LastCommand(again, v1::Command::KILL).epoch(), FirstTerm(1));
  EXPECT_TRUE(Orphans().empty());
}

// It runs, as a newer store knew; where the others of its ranks are is not known yet.
TEST_F(OrphansTest, AJobWithOrphansOfALaterEpochIsNotPlaced) {
  const v1::Job job = Submit(TinyJob("demo", 2));
  Worker a = Return("a", 2, {HeldElsewhere(job.uid(), FirstTerm(5), 2, {0})});
  Worker b = NewWorker("b", 2);
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  EXPECT_NE(Get(job.uid()).message().find("a later epoch are on node a"), std::string::npos)
      << Get(job.uid()).message();
  EXPECT_EQ(CountCommands(a, v1::Command::KILL), 0);
  // Others are not held up.
  EXPECT_EQ(Submit(TinyJob("other", 1)).state(), v1::ADMITTED);
  ASSERT_TRUE(KillOrphan("a", job.uid()).ok());
  v1::Job gone = job;
  gone.set_epoch(FirstTerm(5));
  Gone(a, gone);
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
}

TEST_F(OrphansTest, AnOperatorKillsOrphans) {
  Worker a = Return("a", 1, {HeldElsewhere("unknown-uid", 3, 1, {0})});
  EXPECT_EQ(rpc::ReasonOf(KillOrphan("a", "other")), "UNKNOWN_JOB");
  EXPECT_EQ(rpc::ReasonOf(KillOrphan("b", "unknown-uid")), "UNKNOWN_JOB");
  ASSERT_TRUE(KillOrphan("a", "unknown-uid").ok());
  EXPECT_EQ(CountCommands(a, v1::Command::KILL), 1);
  EXPECT_EQ(Events("OrphanKilled")[0].actor(), "operator");
  // The order outlives the session, a loss of the node and a restart.
  PassBeating(seconds(32), {});
  StartCore();
  Worker again = Return("a", 1, {HeldElsewhere("unknown-uid", 3, 1, {0})});
  EXPECT_EQ(CountCommands(again, v1::Command::KILL), 1);
  v1::Job job;
  job.set_uid("unknown-uid");
  job.set_epoch(3);
  Gone(again, job);
  EXPECT_EQ(Row("unknown-uid", 3, "a"), nullptr);
}

}  // namespace
}  // namespace mt::daemon
