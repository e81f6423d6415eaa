// Between two epochs: what is waited for no longer, and what a placement that fails leaves behind.
#include "tests/daemon/core/next_epoch_rig.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

TEST_F(NextEpochTest, OnceTheEpochIsClosedAKillWaitsForNoLostNode) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = Submit(TinyJob("demo", 2, kFew));
  Start(job.uid(), {&a, &b});
  TellStep(a, job.uid(), 1);
  Report(a, Exit(job, 0, 0, 9));
  Gone(a, job);
  Gone(b, job);
  Start(job.uid(), {&a, &b});
  TellStep(a, job.uid(), 2);
  const v1::Job second = Get(job.uid());
  PassBeating(seconds(40), {&a});  // b is lost
  Report(a, Exit(second, 0, 0, 9));
  Gone(a, second);
  ASSERT_EQ(Get(job.uid()).state(), v1::RECOVERING) << "the second one in a row waits";
  ASSERT_TRUE(Kill(job.uid()).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  Connect(&b, 1, {Held(second, v1::TRAINING, {1})});
  EXPECT_EQ(CountCommands(b, v1::Command::KILL), 1);
}

TEST_F(NextEpochTest, OfTwoLostNodesOneThatIsDeclaredDeadIsProofEnough) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = Submit(TinyJob("demo", 2, kFew));
  Start(job.uid(), {&a, &b});
  TellStep(a, job.uid(), 1);
  Worker c = NewWorker("c", 2);
  PassBeating(seconds(40), {&c});
  ASSERT_EQ(Get(job.uid()).state(), v1::RUNNING) << "silence ends nothing";
  v1::DeclareDeadRequest request;
  request.set_node("b");
  v1::Node response;
  ASSERT_TRUE(core_->api().nodes().DeclareDead(request, "operator", &response).ok());
  Settle();
  EXPECT_EQ(SlotsOf(Get(job.uid())), "c:0 c:1");
  EXPECT_EQ(Start(job.uid(), {&c}).state(), v1::RUNNING);
}

TEST_F(NextEpochTest, ARefusedPlacementKeepsTheHeadOfTheQueueAndFailsTheSave) {
  const v1::Job older = Submit(TinyJob("older", 1));
  ASSERT_TRUE(Pause(older.uid(), v1::PauseRequest::RELEASE).ok());
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  ASSERT_TRUE(Resume(older.uid()).ok());
  TellStep(worker, job.uid(), 1);
  const auto save = Checkpoint(job.uid());
  ASSERT_TRUE(save.ok()) << save.status();
  Die(worker, job.uid(), 0, 9);
  const v1::Job refused = Get(job.uid());
  ASSERT_EQ(refused.state(), v1::ADMITTED);
  EXPECT_FALSE(Op(save->name()).done()) << "the next ranks are to make it";
  Accept(worker, refused, /*accepted=*/false);
  EXPECT_EQ(Op(save->name()).error().reason(), "EPOCH_CLOSED");
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_GT(Get(job.uid()).epoch(), refused.epoch());
  EXPECT_EQ(Get(older.uid()).state(), v1::QUEUED);
  EXPECT_EQ(Start(job.uid(), {&worker}).state(), v1::RUNNING);
}

TEST_F(NextEpochTest, WhatAnEpochWasToTraceIsNotWaitedFor) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  TellStep(worker, job.uid(), 1);
  v1::ProfileRequest request;
  request.set_steps(2);
  const auto profile = Do(&VerbsApi::Profile, request, job.uid());
  ASSERT_TRUE(profile.ok()) << profile.status();
  Die(worker, job.uid(), 0, 9);
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Op(profile->name()).error().reason(), "EPOCH_CLOSED");
}

}  // namespace
}  // namespace mt::daemon
