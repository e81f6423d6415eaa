// What the next start of a job must find: what the ranks are told, and what a user accepts instead.
#include "tests/daemon/keeper/bases_rig.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

TEST_F(BasesTest, TheFirstPlacementExpectsNothing) {
  Worker worker = NewWorker("a", 1);
  StartRunning(worker, "job", 1);
  EXPECT_FALSE(LastAssign(worker).has_base());
}

TEST_F(BasesTest, AResumeExpectsTheNewestCheckpointThatIsKnown) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {10, 20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  const v1::CheckpointBase base = LastAssign(worker).base();
  EXPECT_EQ(base.job_uid(), job.uid());
  EXPECT_EQ(base.step(), 20);
  EXPECT_EQ(base.digest(), "xxh3:20");
  EXPECT_EQ(base.epoch(), 3);
  EXPECT_EQ(base.root_id(), "root-a");
  EXPECT_FALSE(base.allow_older());
}

// It outlives the job, and its checkpoints count whoever saved them.
TEST_F(BasesTest, TheBaseNamesTheRunThatTheJobTrains) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1);
  v1::WorkerMessage info;
  info.mutable_job_report()->set_job_uid(job.uid());
  info.mutable_job_report()->set_epoch(job.epoch());
  info.mutable_job_report()->mutable_run_info()->mutable_run()->set_id("run-1");
  Report(worker, std::move(info));
  Save(worker, job, 20);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, job);
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(LastAssign(worker).base().run(), "run-1");
  EXPECT_EQ(LastAssign(worker).base().job_uid(), job.uid());
  EXPECT_EQ(LastAssign(worker).base().step(), 20);
}

TEST_F(BasesTest, WhatAJobBeginsWithIsForItsFirstPlacement) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job =
      Released(worker, {20}, "checkpoint: {load: other, load_tag: best, load_kind: weights}\n");
  const v1::Checkpoint first = LastAssign(worker).spec().checkpoint();
  EXPECT_EQ(first.load(), "other");
  EXPECT_EQ(first.load_tag(), "best");
  EXPECT_EQ(first.load_kind(), v1::Checkpoint::LOAD_KIND_WEIGHTS);
  ASSERT_TRUE(Resume(job.uid()).ok());
  const v1::Checkpoint second = LastAssign(worker).spec().checkpoint();
  EXPECT_FALSE(second.has_load());
  EXPECT_FALSE(second.has_load_tag());
  EXPECT_EQ(second.load_kind(), v1::Checkpoint::LOAD_KIND_RESUME) << "what it has saved, all of it";
}

TEST_F(BasesTest, AnOlderOneIsAcceptedForOnePlacement) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {10, 20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  Miss(worker, job.uid());
  const auto resume = ResumeFrom(job.uid(), /*allow_older=*/true, false);
  ASSERT_TRUE(resume.ok()) << resume.status();
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED) << "at once";
  EXPECT_EQ(LastAssign(worker).base().step(), 20);
  EXPECT_TRUE(LastAssign(worker).base().allow_older());
  Start(worker, job.uid(), 10);
  EXPECT_EQ(Op(resume->name()).result(), "RUNNING from step 10");
  // From here on that is the base, until there is a new one.
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, Get(job.uid()));
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(LastAssign(worker).base().step(), 10);
  EXPECT_EQ(LastAssign(worker).base().digest(), "xxh3:10");
  EXPECT_FALSE(LastAssign(worker).base().allow_older());
  Start(worker, job.uid(), 20);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, Get(job.uid()));
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(LastAssign(worker).base().step(), 20) << "it was back";
  Start(worker, job.uid(), 20);
  Save(worker, Get(job.uid()), 25);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, Get(job.uid()));
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(LastAssign(worker).base().step(), 25);
}

TEST_F(BasesTest, WhatWasAcceptedIsOverWhereEvenThatIsMissing) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(ResumeFrom(job.uid(), /*allow_older=*/true, false).ok());
  EXPECT_TRUE(LastAssign(worker).base().allow_older());
  Miss(worker, job.uid());
  PassBeating(seconds(8), {&worker});
  ASSERT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_FALSE(LastAssign(worker).base().allow_older());
}

TEST_F(BasesTest, WhatWasAcceptedOutlivesPlacementsThatFailAndRestarts) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(ResumeFrom(job.uid(), false, /*fresh=*/true).ok());
  EXPECT_TRUE(LastAssign(worker).spec().checkpoint().fresh());
  EXPECT_FALSE(LastAssign(worker).has_base());
  Accept(worker, Get(job.uid()), /*accepted=*/false);
  StartCore();
  Connect(&worker, 1);
  PassBeating(seconds(8), {&worker});
  ASSERT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_TRUE(LastAssign(worker).spec().checkpoint().fresh());
  EXPECT_FALSE(Get(job.uid()).spec().checkpoint().fresh()) << "the job itself does not say so";
  Start(worker, job.uid(), 0);
  Save(worker, Get(job.uid()), 5);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, Get(job.uid()));
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_FALSE(LastAssign(worker).spec().checkpoint().fresh());
  EXPECT_EQ(LastAssign(worker).base().step(), 5) << "a start at step 0 has begun a new history";
}

TEST_F(BasesTest, WhereRanksAreKeptNothingOlderIsAccepted) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  for (const bool fresh : {false, true}) {
    const auto refused = ResumeFrom(job.uid(), !fresh, fresh);
    EXPECT_EQ(rpc::ReasonOf(refused.status()), "WRONG_STATE") << refused.status();
  }
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_HOLD);
  EXPECT_TRUE(absl::IsInvalidArgument(ResumeFrom(job.uid(), true, true).status()));
}

TEST_F(BasesTest, DamageThatWasPassedOverIsTold) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {10, 20});
  ASSERT_TRUE(Resume(job.uid()).ok());
  const v1::Job now = Get(job.uid());
  Accept(worker, now);
  ReportStart(worker, now, 10, "step-00000020-e0001: rank-00000.safetensors is missing");
  const auto events = Events("CheckpointDamaged");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_NE(events[0].message().find("step-00000020-e0001"), std::string::npos);
  EXPECT_EQ(events[0].step(), 10);
}

TEST_F(BasesTest, TheIdentityOfTheRootIsShownAndFollowed) {
  Worker worker = NewWorker("a", 2);
  v1::WorkerMessage message;
  for (int i = 0; i < 2; ++i) {
    v1::Slot* slot = message.mutable_slots_changed()->add_slots();
    slot->set_index(i);
    slot->set_device(v1::CPU_SLOT);
  }
  message.mutable_slots_changed()->set_checkpoint_root_id("root-b");
  Report(worker, message);
  EXPECT_EQ(core_->ledger().FindWorker("a")->node().checkpoint_root_id(), "root-b");
  message.mutable_slots_changed()->clear_checkpoint_root_id();
  Report(worker, message);
  EXPECT_EQ(core_->ledger().FindWorker("a")->node().checkpoint_root_id(), "root-b");
}

}  // namespace
}  // namespace mt::daemon
