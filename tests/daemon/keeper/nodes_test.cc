// Silence: workers that are lost, come back, start anew, or are declared dead.
#include <algorithm>

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class NodesTest : public CoreTest {
 protected:
  // A job that trains on nodes a and b.
  v1::Job StartOnTwo(Worker& a, Worker& b) {
    const v1::Job job = Submit(TinyJob("demo", 2));
    Accept(a, job);
    Accept(b, job);
    Report(a, RankMessage(job, 0, v1::TRAINING));
    Report(b, RankMessage(job, 1, v1::TRAINING));
    EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
    return job;
  }
  Status DeclareDead(const std::string& node) {
    v1::DeclareDeadRequest request;
    request.set_node(node);
    request.set_reason("burnt");
    v1::Node response;
    const Status status = core_->api().nodes().DeclareDead(request, "operator", &response);
    Settle();
    EXPECT_EQ(response.state(), status.ok() ? v1::NODE_DEAD : v1::NODE_STATE_UNSPECIFIED);
    return status;
  }
  v1::NodeState StateOf(const std::string& name) {
    v1::ListNodesResponse nodes;
    core_->api().nodes().List(&nodes);
    for (const v1::Node& node : nodes.nodes()) {
      if (node.name() == name) return node.state();
    }
    return v1::NODE_STATE_UNSPECIFIED;
  }
};

TEST_F(NodesTest, ALostWorkerKeepsItsJobItsRanksAndItsSlots) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  v1::Job job = StartOnTwo(a, b);
  PassBeating(seconds(12), {&a});
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "NodeUnreachable") << "suspect";
  PassBeating(seconds(20), {&a});
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(job.ranks(1).state(), v1::UNKNOWN);
  EXPECT_EQ(job.ranks(0).state(), v1::TRAINING);
  EXPECT_TRUE(b.link->closed);
  // Others report its progress; its slot is offered to nobody.
  Report(a, StepsMessage(job, 1, 5));
  const v1::Job next = Submit(TinyJob("next", 1));
  EXPECT_EQ(Get(next.uid()).state(), v1::QUEUED);
  // It is back with its rank, which has never stopped.
  Connect(&b, 1, {Held(job, v1::TRAINING, {1})});
  job = Get(job.uid());
  EXPECT_EQ(job.ranks(1).state(), v1::TRAINING);
  EXPECT_EQ(ConditionsOf(job), "");
  EXPECT_EQ(CountCommands(b, v1::Command::KILL), 0);
  EXPECT_EQ(CountCommands(a, v1::Command::KILL), 0);
  EXPECT_EQ(job.last_step().step(), 5);
}

TEST_F(NodesTest, AJobNamesEveryNodeThatIsSilent) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = StartOnTwo(a, b);
  PassBeating(seconds(32), {});
  ASSERT_EQ(Get(job.uid()).conditions_size(), 1);
  EXPECT_EQ(Get(job.uid()).conditions(0).message(), "no heartbeat from node a, b");
  Connect(&a, 1, {Held(job, v1::TRAINING, {0})});
  EXPECT_EQ(Get(job.uid()).conditions(0).message(), "no heartbeat from node b");
}

TEST_F(NodesTest, APlacementOnALostNodeGoesBackToTheQueue) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  ASSERT_EQ(job.state(), v1::ADMITTED);
  PassBeating(seconds(32), {});
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  Connect(&a, 1);
  PassBeating(seconds(2), {&a});
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(control::CountOfEpoch(Get(job.uid()).epoch()), 2);
}

TEST_F(NodesTest, WhatWasAskedMeanwhileIsToldWhenTheNodeIsBack) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1);
  PassBeating(seconds(32), {});
  const auto cancel = Cancel(job.uid(), true);
  ASSERT_TRUE(cancel.ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING) << "nobody knows that its ranks are gone";
  Connect(&a, 1, {Held(job, v1::TRAINING)});
  EXPECT_EQ(CountCommands(a, v1::Command::STOP_WITH_SAVE), 1);
  EXPECT_EQ(CountCommands(a, v1::Command::KILL), 0);
  Gone(a, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
}

TEST_F(NodesTest, AKillReachesTheNodeWhenItIsBackEvenAfterARestart) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = StartOnTwo(a, b);
  PassBeating(seconds(32), {&a});
  const auto kill = Kill(job.uid());
  Gone(a, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(Get(job.uid()).ranks(1).state(), v1::FENCED);
  StartCore();
  Connect(&b, 1, {Held(job, v1::TRAINING, {1})});
  EXPECT_EQ(CountCommands(b, v1::Command::KILL), 1);
  EXPECT_EQ(Get(job.uid()).ranks(1).state(), v1::FENCED);
  Gone(b, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  EXPECT_EQ(Get(job.uid()).ranks(1).state(), v1::DONE);
  EXPECT_TRUE(Op(kill->name()).done());
}

TEST_F(NodesTest, ARestartedAgentFindsItsRanksAndNothingHappens) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, RankMessage(job, 0, v1::TRAINING));
  core_->sessions().OnClosed(worker.session);
  Worker restarted{.node = "n1", .uid = base::NewUid(), .link = nullptr};
  // It has not heard its rank yet: it knows of a process.
  Connect(&restarted, 1, {Held(job, v1::SPAWNED)});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).ranks(0).state(), v1::TRAINING);
  EXPECT_EQ(CountCommands(restarted, v1::Command::KILL), 0);
  Report(restarted, StepsMessage(job, 1, 3));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 3);
  EXPECT_EQ(core_->reports().num_fenced(), 0);
}

TEST_F(NodesTest, ARestartedAgentWithoutItsRanksFailsTheJob) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  core_->sessions().OnClosed(worker.session);
  Worker restarted = NewWorker("n1", 1);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(job.uid()).cause(), v1::INTERNAL);
  EXPECT_NE(Get(job.uid()).message().find("restarted"), std::string::npos);
}

TEST_F(NodesTest, TwoAgentsWithOneName) {
  Worker first = NewWorker("n1", 1);
  Worker second = NewWorker("n1", 1);
  EXPECT_TRUE(second.link->closed);
  EXPECT_EQ(rpc::ReasonOf(second.link->end), "NODE_NAME_IN_USE");
  EXPECT_FALSE(first.link->closed);
  // Another boot proves nothing: it may be another machine.
  Connect(&second, 1, {}, "another boot");
  EXPECT_TRUE(second.link->closed);
  EXPECT_FALSE(first.link->closed);
}

TEST_F(NodesTest, ALostNodeThatIsBackWithoutItsRanksFailsTheJob) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  PassBeating(seconds(32), {});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  // Of a node that was booted again tells IdentityTest.
  Worker restarted = NewWorker("n1", 1);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_NE(Get(job.uid()).message().find("did not find them"), std::string::npos);
}

TEST_F(NodesTest, TheSameAgentReportsTheEndOfItsRanksItself) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  PassBeating(seconds(32), {});
  Connect(&worker, 1);  // they ended while it was cut off
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  v1::WorkerMessage died = RankMessage(job, 0, v1::FAULTED);
  died.mutable_rank_report()->mutable_status()->set_exited(true);
  died.mutable_rank_report()->mutable_status()->set_exit_code(74);
  Report(worker, died);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(job.uid()).cause(), v1::NUMERIC) << "the report, not the silence, says why";
}

TEST_F(NodesTest, DeclareDeadIsRefusedWhileTheNodeIsHeard) {
  Worker a = NewWorker("a", 1);
  EXPECT_EQ(rpc::ReasonOf(DeclareDead("a")), "NODE_ALIVE");
  EXPECT_EQ(rpc::ReasonOf(DeclareDead("nobody")), "UNKNOWN_NODE");
  PassBeating(seconds(12), {});
  EXPECT_EQ(rpc::ReasonOf(DeclareDead("a")), "NODE_ALIVE") << "suspect is not lost";
}

TEST_F(NodesTest, DeclareDeadEndsTheJobsOfItsRanks) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  v1::Job job = StartOnTwo(a, b);
  PassBeating(seconds(32), {&a});
  ASSERT_TRUE(DeclareDead("b").ok());
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::STOPPING);
  EXPECT_EQ(job.cause(), v1::HARDWARE);
  EXPECT_EQ(job.message(), "node b was declared dead by operator: burnt");
  EXPECT_EQ(job.ranks(1).state(), v1::FENCED);
  EXPECT_EQ(CountCommands(a, v1::Command::KILL), 1);
  Gone(a, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  ASSERT_EQ(Events("NodeDeclaredDead").size(), 1u);
  EXPECT_EQ(Events("NodeDeclaredDead")[0].actor(), "operator");
  EXPECT_EQ(Events("NodeDeclaredDead")[0].reason(), "burnt");
  // A restart forgets it not; and it is no death to be told twice.
  StartCore();
  PassBeating(seconds(32), {});
  EXPECT_EQ(StateOf("b"), v1::NODE_DEAD);
  EXPECT_TRUE(DeclareDead("b").ok());
  EXPECT_EQ(Events("NodeDeclaredDead").size(), 1u);
  // It lives after all: its rank must go before its slot is used.
  const v1::Job next = Submit(TinyJob("next", 1));
  Connect(&b, 1, {Held(job, v1::TRAINING, {1})});
  EXPECT_EQ(StateOf("b"), v1::NODE_READY);
  EXPECT_EQ(CountCommands(b, v1::Command::KILL), 1);
  EXPECT_EQ(Get(next.uid()).state(), v1::QUEUED);
  Gone(b, job);
  EXPECT_EQ(Get(next.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
}

TEST_F(NodesTest, DeclareDeadGivesWhatWasAsked) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job cancelled = StartRunning(a, "cancelled", 1);
  const v1::Job released = StartRunning(b, "released", 1);
  PassBeating(seconds(32), {});
  const auto cancel = Cancel(cancelled.uid(), true);
  const auto pause = Pause(released.uid(), v1::PauseRequest::RELEASE);
  EXPECT_EQ(Get(released.uid()).state(), v1::RELEASING);
  ASSERT_TRUE(DeclareDead("a").ok());
  ASSERT_TRUE(DeclareDead("b").ok());
  EXPECT_EQ(Get(cancelled.uid()).state(), v1::CANCELLED);
  EXPECT_EQ(ConditionsOf(Get(cancelled.uid())), "CheckpointStale");
  EXPECT_EQ(Get(released.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_TRUE(Op(cancel->name()).done());
  EXPECT_TRUE(Op(pause->name()).done());
}

TEST_F(NodesTest, TensorGroupsStayTogether) {
  const char* pairs = "parallel: {tensor: 2, data: 2}\n";
  Worker large = NewWorker("large", 3);
  Worker small = NewWorker("small", 1);
  const v1::Job job = Submit(TinyJob("pairs", 4, pairs));
  EXPECT_EQ(job.state(), v1::QUEUED);
  EXPECT_EQ(
      job.message(),
      "needs 2 x 2 CPU slots (tensor-parallel groups of 2, each on one node), cluster has 3 + "
      "1");
  // It fits no fleet like this one, so it holds nobody back.
  EXPECT_EQ(Submit(TinyJob("single", 1)).state(), v1::ADMITTED);
  Worker other = NewWorker("other", 2);
  const v1::Job placed = Get(job.uid());
  ASSERT_EQ(placed.state(), v1::ADMITTED);
  ASSERT_EQ(placed.ranks_size(), 4);
  for (int first : {0, 2}) EXPECT_EQ(placed.ranks(first).node(), placed.ranks(first + 1).node());
  EXPECT_NE(placed.ranks(0).node(), placed.ranks(2).node());
}

TEST_F(NodesTest, AVerbNamesTheNodesThatItWaitsFor) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = StartOnTwo(a, b);
  const std::string since = base::FormatUtc(base::ToUnixMicros(clock_.WallNow()));
  PassBeating(seconds(12), {&a});
  const auto hold = Pause(job.uid(), v1::PauseRequest::HOLD);
  ASSERT_TRUE(hold.ok());
  EXPECT_EQ(hold->progress(), "waiting for every rank to hold; b is silent since " + since);
  PassBeating(seconds(20), {&a});
  const std::string lost = "b is lost since " + since + ": its ranks cannot ";
  const std::string advice = " until it is back; mtctl node declare-dead b if it is off";
  EXPECT_EQ(Op(hold->name()).progress(),
            "waiting for every rank to hold; " + lost + "be held" + advice);
  const auto cancel = Cancel(job.uid(), false);
  EXPECT_EQ(cancel->progress(), "stopping; " + lost + "be stopped" + advice);
  const auto kill = Kill(job.uid());
  EXPECT_EQ(kill->progress(), "ending the processes; " + lost + "be killed" + advice);
  ASSERT_EQ(kill->lost_nodes_size(), 1);
  EXPECT_EQ(kill->lost_nodes(0), "b");
  Gone(a, job);
  // Waiting for it, and in a list, it is the same; the store keeps none of it.
  v1::WaitOperationRequest wait;
  wait.set_name(kill->name());
  v1::Operation heard;
  core_->api().operations().Wait(wait,
                                 [&](const Status&, const v1::Operation* now) { heard = *now; });
  Settle();
  EXPECT_EQ(heard.progress(), kill->progress());
  v1::ListOperationsResponse all;
  EXPECT_TRUE(core_->api().operations().List({}, &all).ok());
  const auto listed = std::ranges::find(all.operations(), kill->name(), &v1::Operation::name);
  ASSERT_NE(listed, all.operations().end());
  EXPECT_EQ(listed->progress(), kill->progress());
  EXPECT_EQ(core_->ledger().FindOperation(kill->name())->progress(), "ending the processes");
  // Back: nothing is in its way.
  Connect(&b, 1, {Held(job, v1::TRAINING, {1})});
  EXPECT_EQ(Op(kill->name()).progress(), "ending the processes");
  EXPECT_EQ(Op(kill->name()).lost_nodes_size(), 0);
  Gone(b, job);
  EXPECT_TRUE(Op(kill->name()).done());
  EXPECT_EQ(Op(kill->name()).progress(), "");
}

TEST_F(NodesTest, ANodeWithAnUnreadableNameOrLabelIsRefused) {
  for (const char* name :
       {"", "-x", ".", "..", "a/b", "a b", "a\x1b[2J", "\xff", "a\xE2\x80\xAE"}) {
    const Worker worker = NewWorker(name, 1);
    EXPECT_TRUE(worker.link->closed) << name;
    EXPECT_EQ(worker.link->end.code(), absl::StatusCode::kInvalidArgument) << name;
  }
  labels_ = {{"zone", "a\x1b[2J"}};
  EXPECT_EQ(NewWorker("n1", 1).link->end.code(), absl::StatusCode::kInvalidArgument);
  labels_ = {{"-zone", "a"}};
  EXPECT_EQ(NewWorker("n1", 1).link->end.code(), absl::StatusCode::kInvalidArgument);
  labels_ = {{"zone", "a"}};
  EXPECT_FALSE(NewWorker("n1", 1).link->closed);
}

TEST_F(NodesTest, AReasonThatATerminalWouldObeyIsRefused) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1);
  for (const char* reason : {"\x1b[2J", "two\nlines", "a\xC2\x9B", "a\xE2\x80\xAE"}) {
    v1::KillRequest kill;
    kill.set_reason(reason);
    const auto killed = Do(&VerbsApi::Kill, kill, job.uid());
    EXPECT_EQ(rpc::ReasonOf(killed.status()), rpc::reason::kInvalidRequest) << reason;
    v1::UpdateJobRequest update;
    update.mutable_job()->set_uid(job.uid());
    update.set_reason(reason);
    v1::Job updated;
    EXPECT_EQ(rpc::ReasonOf(core_->api().jobs().Update(update, "tester", &updated)),
              rpc::reason::kInvalidRequest);
    v1::DeclareDeadRequest dead;
    dead.set_node("a");
    dead.set_reason(reason);
    v1::Node node;
    EXPECT_EQ(rpc::ReasonOf(core_->api().nodes().DeclareDead(dead, "tester", &node)),
              rpc::reason::kInvalidRequest);
  }
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_FALSE(Cancel(job.uid(), false, "id\x1b[2J").ok());
}

}  // namespace
}  // namespace mt::daemon
