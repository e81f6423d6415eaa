// A fault that another epoch follows: what is killed, which slots come next, what it is counted
// against, over starts of the coordinator; and what becomes of what users have asked for.
#include <string>

#include "tests/daemon/core/next_epoch_rig.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

TEST_F(NextEpochTest, AKilledRankCostsAnEpochAndNotTheJob) {
  Worker worker = NewWorker("n1", 4);
  v1::Job job = StartRunning(worker, "demo", 2, kFew);
  const int64_t epoch = job.epoch();
  const std::string slots = SlotsOf(job);
  Report(worker, StepsMessage(job, 1, 12));
  Report(worker, SavedMessage(job, 10));
  Report(worker, Exit(job, 1, 0, 9));
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::RECOVERING);
  EXPECT_EQ(job.epoch(), epoch);
  EXPECT_EQ(job.cause(), v1::CAUSE_UNSPECIFIED) << "it has not failed";
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1) << "the other rank";
  EXPECT_EQ(CountAssigns(worker), 1) << "nothing is placed before all exits are had";
  EXPECT_NE(job.message().find("rank 1 on node n1 was ended by SIGKILL"), std::string::npos);
  // Late steps of the old epoch count, its late commands do not.
  Report(worker, StepsMessage(job, 13, 13));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 13);
  Gone(worker, job);
  job = Start(job.uid(), {&worker});
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(job.epoch(), epoch + 1);
  EXPECT_EQ(SlotsOf(job), slots);
  EXPECT_EQ(LastAssign(worker).base().step(), 10);
  const v1::Restarts& restarts = job.restarts();
  EXPECT_EQ(restarts.infrastructure(), 1);
  EXPECT_EQ(restarts.best_step(), 13);
  EXPECT_EQ(restarts.cause(), v1::INTERNAL);
  EXPECT_EQ(restarts.rank(), 1);
  EXPECT_EQ(restarts.step(), 12);
  EXPECT_EQ(Events("RankFailed").size(), 1U);
  EXPECT_EQ(Events("Recovered").size(), 1U);
  EXPECT_TRUE(Events("JobFailed").empty());
}

TEST_F(NextEpochTest, WhatIsNeverRetriedFailsTheJobAtOnce) {
  Worker worker = NewWorker("n1", 4);
  for (const int code : {64, 74, 93}) {
    const v1::Job job = StartRunning(worker, fmt::format("code-{}", code), 1, kFew);
    Die(worker, job.uid(), code);
    EXPECT_EQ(Get(job.uid()).state(), v1::FAILED) << code;
    EXPECT_FALSE(Get(job.uid()).has_restarts()) << code;
  }
}

TEST_F(NextEpochTest, ABudgetThatIsSpentIsNamed) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  TellStep(worker, job.uid(), 1);
  Die(worker, job.uid(), 76);
  Start(job.uid(), {&worker});
  TellStep(worker, job.uid(), 2);
  Die(worker, job.uid(), 73);
  const v1::Job failed = Get(job.uid());
  EXPECT_EQ(failed.state(), v1::FAILED);
  EXPECT_EQ(failed.cause(), v1::STORAGE);
  EXPECT_TRUE(
      failed.message().ends_with("; all 1 restarts of resilience.max_restarts.storage are spent"))
      << failed.message();
  EXPECT_EQ(failed.restarts().storage(), 1);
}

TEST_F(NextEpochTest, MemoryIsTheUsersBudgetWhateverTheCode) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  TellStep(worker, job.uid(), 1);
  Die(worker, job.uid(), 64, 0, v1::OOM);
  EXPECT_EQ(Start(job.uid(), {&worker}).restarts().user(), 1);
  TellStep(worker, job.uid(), 2);
  Die(worker, job.uid(), 64, 0, v1::OOM);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(job.uid()).cause(), v1::OOM);
}

TEST_F(NextEpochTest, AJobThatDiesAtTheSameStepIsToldAfterItsBudget) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  TellStep(worker, job.uid(), 5);
  for (int death = 0; death < 3; ++death) {
    Die(worker, job.uid(), 0, 11);
    PassBeating(seconds(20), {&worker});
    ASSERT_EQ(Get(job.uid()).state(), v1::ADMITTED) << death;
    Start(job.uid(), {&worker});
    TellStep(worker, job.uid(), 4);  // it goes on from before
  }
  Die(worker, job.uid(), 0, 11);
  const v1::Job failed = Get(job.uid());
  EXPECT_EQ(failed.state(), v1::FAILED);
  EXPECT_EQ(failed.cause(), v1::NO_PROGRESS);
  EXPECT_EQ(failed.message(),
            "no step beyond step 5 in 2 restarts (resilience.max_restarts.no_progress); the last "
            "fault: INTERNAL: rank 0 on node n1 was ended by SIGSEGV (signal 11)");
}

TEST_F(NextEpochTest, BudgetsAndDelaysOutliveTheCoordinator) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  TellStep(worker, job.uid(), 1);
  Die(worker, job.uid(), 75);
  Start(job.uid(), {&worker});
  TellStep(worker, job.uid(), 2);
  Die(worker, job.uid(), 75);
  // The second one in a row waits, 4 to 6 s, and its slot waits with it.
  EXPECT_EQ(Get(job.uid()).state(), v1::RECOVERING);
  const v1::Job other = Submit(TinyJob("other", 1));
  EXPECT_EQ(Get(other.uid()).state(), v1::QUEUED);
  StartCore();
  Connect(&worker, 1);
  EXPECT_EQ(Get(job.uid()).state(), v1::RECOVERING);
  EXPECT_EQ(Get(job.uid()).restarts().infrastructure(), 2);
  PassBeating(seconds(2), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::RECOVERING);
  PassBeating(seconds(6), {&worker});
  EXPECT_EQ(Start(job.uid(), {&worker}).state(), v1::RUNNING);
  EXPECT_EQ(Get(other.uid()).state(), v1::QUEUED);
}

TEST_F(NextEpochTest, AConsequenceThatIsHeardFirstGivesWayToItsCause) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = Submit(TinyJob("demo", 2, kFew));
  Start(job.uid(), {&a, &b});
  ASSERT_EQ(Get(job.uid()).state(), v1::RUNNING);
  Report(b, Exit(job, 1, 75));
  EXPECT_EQ(Get(job.uid()).state(), v1::RECOVERING);
  EXPECT_EQ(Get(job.uid()).restarts().infrastructure(), 1);
  Report(a, Exit(job, 0, 64, 0, v1::USER_ERROR));
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(Get(job.uid()).restarts().infrastructure(), 0);
  Gone(a, job);
  Gone(b, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(job.uid()).cause(), v1::USER_ERROR);
  EXPECT_EQ(Get(job.uid()).failed_rank(), 0);
}

TEST_F(NextEpochTest, SoundSlotsStayAndTheOthersAreReplaced) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  Worker c = NewWorker("c", 2);
  const v1::Job job = Submit(TinyJob("demo", 2, kFew));
  // Both on c: the node with room for all.
  ASSERT_EQ(SlotsOf(job), "c:0 c:1");
  Start(job.uid(), {&c});
  // Slot 1 is out of order from now on.
  v1::WorkerMessage changed;
  for (int slot = 0; slot < 2; ++slot) {
    v1::Slot* one = changed.mutable_slots_changed()->add_slots();
    one->set_index(slot);
    one->set_device(v1::CPU_SLOT);
    if (slot == 1) one->set_out_of_order("rank 1 ended with exit code 72");
  }
  Report(c, std::move(changed));
  Report(c, Exit(job, 1, 72));
  Gone(c, job);
  EXPECT_EQ(SlotsOf(Get(job.uid())), "c:0 a:0");
  EXPECT_EQ(Start(job.uid(), {&a, &c}).state(), v1::RUNNING);
}

TEST_F(NextEpochTest, ANodeThatFailsItsCheckIsLeftOutWhereAnotherOneWillDo) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1, kFew);
  Worker b = NewWorker("b", 1);
  TellStep(a, job.uid(), 1);
  Die(a, job.uid(), 65);
  EXPECT_EQ(SlotsOf(Get(job.uid())), "b:0");
  Start(job.uid(), {&b});
  // There is no third one.
  TellStep(b, job.uid(), 2);
  core_->sessions().OnClosed(a.session);
  PassBeating(seconds(40), {&b});
  Die(b, job.uid(), 65);
  PassBeating(seconds(8), {&b});
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(SlotsOf(Get(job.uid())), "b:0");
}

TEST_F(NextEpochTest, WithoutRoomItGoesToTheHeadOfItsClass) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job older = Submit(TinyJob("older", 3));
  const v1::Job job = Submit(TinyJob("demo", 2, kFew));
  Start(job.uid(), {&a, &b});
  const auto save = Checkpoint(job.uid());
  ASSERT_TRUE(save.ok()) << save.status();
  // b is lost, then rank 0 misses its peer.
  PassBeating(seconds(40), {&a});
  ASSERT_EQ(Get(job.uid()).state(), v1::RUNNING);
  Report(a, Exit(job, 0, 75));
  EXPECT_EQ(Get(job.uid()).state(), v1::RECOVERING);
  Gone(a, job);
  const v1::Job queued = Get(job.uid());
  EXPECT_EQ(queued.state(), v1::QUEUED) << "without rank 0 that of b does no step";
  EXPECT_EQ(ConditionsOf(queued), "Waiting");
  EXPECT_EQ(Op(save->name()).error().reason(), "EPOCH_CLOSED");
  // There is room for either of the two now.
  Worker c = NewWorker("c", 2);
  EXPECT_EQ(SlotsOf(Get(job.uid())), "c:0 c:1");
  EXPECT_EQ(Get(older.uid()).state(), v1::QUEUED);
  EXPECT_EQ(Start(job.uid(), {&c}).state(), v1::RUNNING);
  // b is back, with a rank of a closed epoch.
  Connect(&b, 1, {Held(job, v1::TRAINING, {1})});
  EXPECT_EQ(CountCommands(b, v1::Command::KILL), 1);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(NextEpochTest, WhereNoRankIsKnownToHaveEndedALostNodeIsWaitedFor) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job =
      Submit(TinyJob("demo", 2,
                     "resilience: {max_restarts: {infra_per_hour: 4, no_progress: 2}, timeouts: "
                     "{comm_init: 10s, load: 10s}}\n"));
  Accept(a, job);
  Accept(b, job);
  Report(a, RankMessage(job, 0, v1::COMM_INIT));
  Report(b, RankMessage(job, 1, v1::COMM_INIT));
  PassBeating(seconds(52), {&a, &b});
  ASSERT_EQ(Get(job.uid()).state(), v1::RECOVERING) << "its start has taken too long";
  // Neither takes the kill: both fall silent. Their ranks may train.
  PassBeating(seconds(40), {});
  EXPECT_EQ(Get(job.uid()).state(), v1::RECOVERING);
  Worker c = NewWorker("c", 2);
  PassBeating(seconds(4), {&c});
  EXPECT_EQ(Get(job.uid()).state(), v1::RECOVERING);
  EXPECT_EQ(CountAssigns(c), 0);
}

TEST_F(NextEpochTest, RanksThatAreGoneWithoutAReportAreProofEnough) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = Submit(TinyJob("demo", 2, kFew));
  Start(job.uid(), {&a, &b});
  TellStep(a, job.uid(), 1);
  PassBeating(seconds(40), {&b});  // a is lost
  Gone(b, job);
  EXPECT_EQ(Events("EpochFailed").size(), 1U);
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED) << "a's rank does no step without that of b";
  Worker c = NewWorker("c", 2);
  EXPECT_EQ(SlotsOf(Get(job.uid())), "c:0 c:1");
}

TEST_F(NextEpochTest, GoalsCarryOverAndASaveIsMadeByTheNextRanks) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  TellStep(worker, job.uid(), 1);
  v1::TriggerCheckpointRequest request;
  request.mutable_label()->set_tag("best");
  const auto save = Do(&VerbsApi::TriggerCheckpoint, request, job.uid());
  ASSERT_TRUE(save.ok()) << save.status();
  const std::string id = LastCommand(worker, v1::Command::CHECKPOINT_NOW).command_id();
  Report(worker, Exit(job, 0, 0, 9));
  // A pause while it recovers: the next ranks hold.
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  ASSERT_TRUE(pause.ok()) << pause.status();
  EXPECT_EQ(Get(job.uid()).state(), v1::RECOVERING);
  EXPECT_EQ(CountCommands(worker, v1::Command::HOLD), 0);
  Gone(worker, job);
  EXPECT_TRUE(LastAssign(worker).hold());
  Start(job.uid(), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  EXPECT_TRUE(Op(pause->name()).done());
  EXPECT_EQ(Op(pause->name()).error().reason(), "");
  const v1::Command again = LastCommand(worker, v1::Command::CHECKPOINT_NOW);
  EXPECT_NE(again.command_id(), id);
  EXPECT_EQ(again.epoch(), Get(job.uid()).epoch());
  EXPECT_EQ(again.label().tag(), "best");
  EXPECT_FALSE(Op(save->name()).done());
  v1::WorkerMessage done = DoneMessage(again, 0, 1);
  auto& saved = *done.mutable_job_report()->mutable_command_done()->mutable_checkpoint();
  saved = Saved(1);
  saved.mutable_label()->set_tag("best");
  Report(worker, std::move(done));
  EXPECT_TRUE(Op(save->name()).done());
  EXPECT_EQ(Op(save->name()).error().reason(), "") << Op(save->name()).error().message();
}

TEST_F(NextEpochTest, WhatAJobBeginsWithIsForItsFirstEpoch) {
  Worker worker = NewWorker("n1", 1);
  for (const char* const begins : {"load: other", "fresh: true"}) {
    const v1::Job job =
        StartRunning(worker, std::string(begins).substr(0, 4), 1,
                     fmt::format("checkpoint: {{{}, keep_last: 2}}\n{}", begins, kFew));
    const v1::Checkpoint first = LastAssign(worker).spec().checkpoint();
    EXPECT_TRUE(first.has_load() || first.fresh()) << begins;
    // It dies before it has saved: it begins again as its file says.
    TellStep(worker, job.uid(), 1);
    Die(worker, job.uid(), 0, 9);
    EXPECT_EQ(LastAssign(worker).spec().checkpoint().load(), first.load());
    EXPECT_EQ(LastAssign(worker).spec().checkpoint().fresh(), first.fresh());
    EXPECT_FALSE(LastAssign(worker).has_base());
    Start(job.uid(), {&worker});
    TellStep(worker, job.uid(), 4);
    Report(worker, SavedMessage(Get(job.uid()), 4));
    // Pruned by whoever: the base stays what it is.
    v1::WorkerMessage deleted;
    deleted.mutable_job_report()->set_job_uid(job.uid());
    deleted.mutable_job_report()->set_epoch(Get(job.uid()).epoch());
    deleted.mutable_job_report()->mutable_checkpoints_deleted()->add_paths("/ckpt/step-4");
    Report(worker, std::move(deleted));
    EXPECT_TRUE(Get(job.uid()).checkpoints().empty());
    Die(worker, job.uid(), 0, 9);
    PassBeating(seconds(8), {&worker});
    const v1::Assign next = LastAssign(worker);
    EXPECT_EQ(next.epoch(), Get(job.uid()).epoch());
    EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
    EXPECT_FALSE(next.spec().checkpoint().has_load()) << begins;
    EXPECT_FALSE(next.spec().checkpoint().fresh()) << begins;
    EXPECT_EQ(next.spec().checkpoint().load_kind(), v1::Checkpoint::LOAD_KIND_RESUME);
    EXPECT_EQ(next.base().step(), 4);
    ASSERT_TRUE(Kill(job.uid()).ok());
    Gone(worker, Get(job.uid()));
  }
}

TEST_F(NextEpochTest, EachEpochIsAnAttemptOfTheRunOverTerms) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  const auto tell = [&](int64_t step) {
    v1::WorkerMessage info;
    info.mutable_job_report()->set_job_uid(job.uid());
    info.mutable_job_report()->set_epoch(Get(job.uid()).epoch());
    info.mutable_job_report()->mutable_run_info()->mutable_run()->set_id("run-1");
    Report(worker, std::move(info));
    TellStep(worker, job.uid(), step);
    return Get(job.uid()).attempt();
  };
  EXPECT_EQ(tell(1), 1);
  Die(worker, job.uid(), 0, 9);
  Start(job.uid(), {&worker});
  EXPECT_EQ(tell(2), 2);
  Die(worker, job.uid(), 0, 9);
  StartCore();
  Connect(&worker, 1);
  PassBeating(seconds(8), {&worker});
  Start(job.uid(), {&worker});
  EXPECT_EQ(control::TermOfEpoch(Get(job.uid()).epoch()), 2);
  EXPECT_EQ(tell(3), 3);
}

TEST_F(NextEpochTest, VerbsThatEndTheJobEndItWhileItRecovers) {
  Worker worker = NewWorker("n1", 1);
  for (const bool fenced : {false, true}) {
    const v1::Job job = StartRunning(worker, fenced ? "fenced" : "demo", 1, kFew);
    TellStep(worker, job.uid(), 1);
    Die(worker, job.uid(), 75);
    Start(job.uid(), {&worker});
    TellStep(worker, job.uid(), 2);
    const v1::Job second = Get(job.uid());
    Report(worker, Exit(second, 0, 75));
    if (fenced) Gone(worker, second);
    ASSERT_EQ(Get(job.uid()).state(), v1::RECOVERING);
    ASSERT_TRUE(Cancel(job.uid(), /*save=*/true).ok());
    if (!fenced) Gone(worker, second);
    EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED) << fenced;
    EXPECT_TRUE(core_->ledger().Allocations().empty());
  }
}

TEST_F(NextEpochTest, AFaultWhileReleasingKeepsTheReleaseAndNamesWhatIsLost) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, kFew);
  Report(worker, StepsMessage(job, 1, 12));
  Report(worker, SavedMessage(job, 10));
  const auto release = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(release.ok()) << release.status();
  Die(worker, job.uid(), 0, 9);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_FALSE(Get(job.uid()).has_restarts());
  EXPECT_EQ(Op(release->name()).error().reason(), "SAVE_FAILED");
  EXPECT_NE(Op(release->name()).error().message().find("trained to step 12, saved is step 10"),
            std::string::npos)
      << Op(release->name()).error().message();
}

TEST_F(NextEpochTest, ANodeThatIsDeclaredDeadCostsAnEpoch) {
  Worker a = NewWorker("a", 1);
  const v1::Job job = StartRunning(a, "demo", 1, kFew);
  TellStep(a, job.uid(), 1);
  Worker b = NewWorker("b", 1);
  PassBeating(seconds(40), {&b});
  v1::DeclareDeadRequest request;
  request.set_node("a");
  v1::Node response;
  ASSERT_TRUE(core_->api().nodes().DeclareDead(request, "operator", &response).ok());
  Settle();
  EXPECT_EQ(SlotsOf(Get(job.uid())), "b:0");
  EXPECT_EQ(Start(job.uid(), {&b}).state(), v1::RUNNING);
  EXPECT_EQ(Events("EpochFailed").size(), 1U);
}

}  // namespace
}  // namespace mt::daemon
