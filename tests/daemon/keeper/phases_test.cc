// Phantoms, and starts and pauses that do not come to an end.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

class PhasesTest : public CoreTest {
 protected:
  // The ledger loses the job's allocations, as after a store of another time.
  void Lose(const v1::Job& job, const std::string& node) {
    core_->ledger().EraseAllocation({job.uid(), job.epoch(), node});
  }
  // Of the only node.
  v1::NodeState StateOfNode() {
    v1::ListNodesResponse nodes;
    core_->api().nodes().List(&nodes);
    return nodes.nodes_size() == 1 ? nodes.nodes(0).state() : v1::NODE_STATE_UNSPECIFIED;
  }
};

TEST_F(PhasesTest, APhantomIsReleasedWithTheReason) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 9));
  const auto pause = Checkpoint(job.uid());
  Lose(job, "n1");
  PassBeating(seconds(20), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  PassBeating(seconds(40), {&worker});
  const v1::Job now = Get(job.uid());
  EXPECT_EQ(now.state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(now.goal(), v1::GOAL_RELEASE);
  EXPECT_NE(now.message().find("not all ranks of its epoch"), std::string::npos);
  EXPECT_EQ(ConditionsOf(now), "CheckpointStale");
  EXPECT_EQ(now.ranks_size(), 0);
  EXPECT_EQ(Op(pause->name()).error().reason(), "RANKS_LOST");
  EXPECT_EQ(Events("PhantomFound").size(), 1u);
  // It goes on when it is resumed, in a new epoch; and what is found of it after all is taken over.
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_GT(Get(job.uid()).epoch(), job.epoch());
}

// What is said to workers, to operators and to those who would have a name follows the
// coordinator's own limits, not the defaults.
TEST_F(PhasesTest, LimitsOfSilenceMayBeOthers) {
  silence_ = {.suspect_after = seconds(4), .lost_after = seconds(8), .phantom_after = seconds(6)};
  StartCore();
  Worker worker = NewWorker("n1", 1);
  ASSERT_FALSE(worker.link->received.empty());
  EXPECT_EQ(worker.link->received.front().registered().lease_ms(), 8'000);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Lose(job, "n1");
  PassBeating(seconds(4), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  PassBeating(seconds(6), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  const Status alive = core_->sessions().DeclareDead("n1", {.actor = "tester"});
  EXPECT_NE(base::Message(alive).find("less than 8 s ago"), std::string::npos) << alive;
  Worker twin{.node = "n1", .uid = base::NewUid(), .link = nullptr};
  Connect(&twin, 1, {}, "another boot");
  EXPECT_NE(base::Message(twin.link->end).find("heard within 4 s"), std::string::npos)
      << twin.link->end;
  Pass(seconds(5));
  EXPECT_EQ(StateOfNode(), v1::NODE_SUSPECT);
  Pass(seconds(3));
  EXPECT_EQ(StateOfNode(), v1::NODE_LOST);
}

TEST_F(PhasesTest, APhantomThatIsFoundAfterAllGoesOn) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Lose(job, "n1");
  PassBeating(seconds(60), {&worker});
  ASSERT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).epoch(), job.epoch());
}

TEST_F(PhasesTest, OnlyALastingLackOfRanksMakesAPhantom) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  for (int i = 0; i < 3; ++i) {
    Lose(job, "n1");
    PassBeating(seconds(20), {&worker});
    Connect(&worker, 1, {Held(job, v1::TRAINING)});
    PassBeating(seconds(2), {&worker});
  }
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_TRUE(Events("PhantomFound").empty());
}

TEST_F(PhasesTest, APhantomThatStopsHasStopped) {
  Worker a = NewWorker("a", 1);
  const v1::Job cancelled = StartRunning(a, "cancelled", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job released = StartRunning(b, "released", 1);
  ASSERT_TRUE(Cancel(cancelled.uid(), true).ok());
  ASSERT_TRUE(Pause(released.uid(), v1::PauseRequest::RELEASE).ok());
  Lose(cancelled, "a");
  Lose(released, "b");
  PassBeating(seconds(60), {&a, &b});
  EXPECT_EQ(Get(cancelled.uid()).state(), v1::CANCELLED);
  EXPECT_EQ(Get(released.uid()).state(), v1::PAUSED_RELEASED);
}

TEST_F(PhasesTest, AnUnreachableNodesJobIsNoPhantom) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  PassBeating(seconds(600), {});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(PhasesTest, AStartThatDoesNotEndFails) {
  const char* limits = "resilience: {timeouts: {comm_init: 100s, load: 50s}}\n";
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = Submit(TinyJob("demo", 2, limits));
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, v1::READY));
  Report(worker, RankMessage(job, 1, v1::LOADING));
  PassBeating(seconds(176), {&worker});
  ASSERT_EQ(Get(job.uid()).state(), v1::STARTING);
  PassBeating(seconds(8), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(Get(job.uid()).cause(), v1::STORAGE);
  EXPECT_NE(Get(job.uid()).message().find("within 180 s"), std::string::npos);
  EXPECT_NE(Get(job.uid()).message().find("rank 1 on node n1 is LOADING"), std::string::npos);
}

TEST_F(PhasesTest, AStartWaitsForANodeThatIsNotHeard) {
  const char* limits = "resilience: {timeouts: {comm_init: 100s, load: 50s}}\n";
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(TinyJob("demo", 1, limits));
  Accept(worker, job);
  PassBeating(seconds(400), {});
  EXPECT_EQ(Get(job.uid()).state(), v1::STARTING);
  Connect(&worker, 1, {Held(job, v1::COMM_INIT)});
  PassBeating(seconds(170), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::STARTING);
  PassBeating(seconds(20), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(Get(job.uid()).cause(), v1::NETWORK);
}

TEST_F(PhasesTest, AStartWithoutTimeoutsOfItsOwnHasTheDefaults) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, v1::LOADING));
  PassBeating(seconds(1'520), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::STARTING);
  PassBeating(seconds(20), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
}

TEST_F(PhasesTest, APauseWhoseRanksDoNotHoldFailsAndTheJobRuns) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartRunning(worker, "demo", 2);
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  PassBeating(seconds(1'700), {&worker});
  Report(worker, StepsMessage(job, 1, 1));
  Report(worker, RankMessage(job, 0, v1::HELD));
  PassBeating(seconds(1'790), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING) << "a step counts as progress";
  EXPECT_EQ(CountCommands(worker, v1::Command::RESUME), 0);
  PassBeating(seconds(20), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_RUN);
  EXPECT_EQ(Op(pause->name()).error().reason(), "HOLD_TIMED_OUT");
  EXPECT_NE(Op(pause->name()).error().message().find("rank 1 on node n1 is READY"),
            std::string::npos);
  EXPECT_EQ(CountCommands(worker, v1::Command::RESUME), 1);
  // The one that held goes on, and a later pause has its own time.
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::HOLD), 2, 2));
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::RESUME), 2, 2));
  Report(worker, RankMessage(job, 0, v1::TRAINING));
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  PassBeating(seconds(60), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING);
}

TEST_F(PhasesTest, APauseWaitsForANodeThatIsNotHeard) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  PassBeating(seconds(4'000), {});
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING);
}

}  // namespace
}  // namespace mt::daemon
