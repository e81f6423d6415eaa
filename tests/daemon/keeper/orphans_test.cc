// Ranks that the ledger does not know to be closed are nobody's to kill: they are kept as orphans,
// shown, and adopted where their job allows it.
#include "daemon/api/orphans_api.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

// What another coordinator once placed: `ranks` of `world` of a job that may be unknown here.
v1::HeldAllocation HeldElsewhere(const std::string& uid, int64_t epoch, int world,
                                 const std::vector<int>& ranks,
                                 v1::RankState state = v1::TRAINING) {
  v1::Job job;
  job.set_uid(uid);
  job.set_epoch(epoch);
  v1::HeldAllocation held = Held(job, state, ranks);
  for (int i = 0; i < held.ranks_size(); ++i) held.mutable_ranks(i)->set_slot(i);
  held.set_world_size(world);
  held.set_job_name("elsewhere");
  return held;
}

class OrphansTest : public CoreTest {
 protected:
  const v1::StoredAllocation* Row(const std::string& uid, int64_t epoch, const std::string& node) {
    return core_->ledger().FindAllocation({uid, epoch, node});
  }
  bool IsOrphan(const std::string& uid, int64_t epoch, const std::string& node) {
    const v1::StoredAllocation* row = Row(uid, epoch, node);
    return row != nullptr && row->state() == v1::ORPHANED;
  }
  Worker Return(const std::string& node, int slots, const std::vector<v1::HeldAllocation>& held) {
    Worker worker{.node = node, .uid = base::NewUid(), .link = nullptr};
    Connect(&worker, slots, held);
    return worker;
  }
  std::vector<v1::Orphan> Orphans() {
    v1::ListOrphansResponse response;
    core_->api().orphans().List(&response);
    return {response.orphans().begin(), response.orphans().end()};
  }
  StatusOr<v1::Job> Adopt(const std::string& uid, const std::string& name = "") {
    v1::AdoptRequest request;
    request.set_job_uid(uid);
    request.set_name(name);
    v1::Job job;
    const Status status = core_->api().orphans().Adopt(request, "operator", &job);
    Settle();
    if (!status.ok()) return status;
    return job;
  }
  Status KillOrphan(const std::string& node, const std::string& uid) {
    v1::KillOrphanRequest request;
    request.set_node(node);
    request.set_job_uid(uid);
    v1::KillOrphanResponse response;
    const Status status = core_->api().orphans().Kill(request, "operator", &response);
    Settle();
    return status;
  }
  // The agent answers a HeldRequest.
  void ReportHeld(Worker& worker, const std::vector<v1::HeldAllocation>& held) {
    v1::WorkerMessage message;
    message.mutable_held_report();
    for (const v1::HeldAllocation& one : held)
      *message.mutable_held_report()->add_allocations() = one;
    Report(worker, message);
  }
  static v1::HeldAllocation WithAssign(v1::HeldAllocation held, const v1::JobSpec& spec,
                                       int64_t created_us = 0) {
    v1::Assign* assign = held.mutable_assign();
    assign->set_job_uid(held.job_uid());
    assign->set_epoch(held.epoch());
    assign->set_world_size(held.world_size());
    assign->set_namespace_("team");
    assign->set_created_us(created_us);
    *assign->mutable_spec() = spec;
    return held;
  }
  static int CountHeldRequests(const Worker& worker, bool with_assign) {
    int count = 0;
    for (const auto& message : worker.link->received)
      count += message.has_held_request() && message.held_request().with_assign() == with_assign;
    return count;
  }
};

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
  Worker b = Return("b", 2, {HeldElsewhere(job.uid(), 9, 2, {0})});
  Worker c = Return("c", 2, {HeldElsewhere(job.uid(), 5, 1, {0})});
  EXPECT_EQ(Get(job.uid()).epoch(), job.epoch());
  EXPECT_EQ(CountCommands(c, v1::Command::KILL), 0);
  Worker d = Return("d", 2, {HeldElsewhere(job.uid(), 9, 2, {1})});
  EXPECT_EQ(Get(job.uid()).epoch(), 9);
  EXPECT_EQ(CountCommands(c, v1::Command::KILL), 1) << "closed now";
  EXPECT_EQ(CountCommands(b, v1::Command::KILL), 0);
}

TEST_F(OrphansTest, HeldRanksStayHeldAndAJobThatIsToHoldHolds) {
  Worker a = NewWorker("a", 1);
  const v1::Job held = StartRunning(a, "held", 1);
  core_->sessions().OnClosed(a.session);
  Return("a", 1, {HeldElsewhere(held.uid(), 5, 1, {0}, v1::HELD)});
  EXPECT_EQ(Get(held.uid()).state(), v1::PAUSED_HELD) << "nobody knows who paused it";
  EXPECT_EQ(Get(held.uid()).goal(), v1::GOAL_HOLD);

  Worker b = NewWorker("b", 1);
  const v1::Job hold = StartRunning(b, "hold", 1);
  const auto pause = Pause(hold.uid(), v1::PauseRequest::HOLD);
  core_->sessions().OnClosed(b.session);
  Worker b2 = Return("b", 1, {HeldElsewhere(hold.uid(), 5, 1, {0}, v1::TRAINING)});
  EXPECT_EQ(Get(hold.uid()).goal(), v1::GOAL_HOLD);
  const v1::Command told = LastCommand(b2, v1::Command::HOLD);
  ASSERT_EQ(told.epoch(), 5);
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
  Worker again = Return("a", 1, {HeldElsewhere(job.uid(), 5, 1, {0})});
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(Get(job.uid()).epoch(), 5);
  EXPECT_EQ(LastCommand(again, v1::Command::STOP_WITH_SAVE).epoch(), 5);
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
  Worker higher = Return("a", 1, {HeldElsewhere(job.uid(), 5, 1, {0})});
  EXPECT_EQ(CountCommands(higher, v1::Command::KILL), 0);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_RUN);
  const v1::Job queued = Submit(TinyJob("queued", 1));
  ASSERT_EQ(queued.state(), v1::QUEUED);
  Return("b", 1, {HeldElsewhere(queued.uid(), 3, 1, {0}, v1::SPAWNED)});
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
  Return("b", 1, {HeldElsewhere(ended.uid(), 5, 1, {0})});
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

// An old store: what it says of a node is of the past, and no reason to fail a job.
TEST_F(OrphansTest, WhileARestoreIsNotSettledAMissingAllocationFailsNoJob) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1);
  core_->ledger().Cluster().set_restored_term(7);
  core_->ledger().Cluster().set_restore_settled(false);
  core_->sessions().OnClosed(a.session);
  Worker again = Return("a", 1, {});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  Return("b", 1, {HeldElsewhere(job.uid(), 5, 1, {0})});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).epoch(), 5);
}

}  // namespace
}  // namespace mt::daemon
