// What the next start of a job must find: what the ranks are told, and the way of a job whose
// checkpoint is gone.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

constexpr char kReason[] = "EXPECTED_CHECKPOINT_MISSING";

class BasesTest : public CoreTest {
 protected:
  static v1::Assign LastAssign(const Worker& worker) {
    v1::Assign last;
    for (const auto& message : worker.link->received) {
      if (message.has_assign()) last = message.assign();
    }
    return last;
  }
  void Save(Worker& worker, const v1::Job& job, int64_t step) {
    v1::WorkerMessage message = SavedMessage(job, step);
    auto& saved = *message.mutable_job_report()->mutable_checkpoint_saved();
    saved.set_digest("xxh3:" + std::to_string(step));
    saved.set_epoch(3);
    saved.set_root_id("root-a");
    Report(worker, std::move(message));
  }
  // A job that has saved these steps, released, with nothing running.
  v1::Job Released(Worker& worker, const std::vector<int64_t>& steps,
                   const std::string& more = "") {
    const v1::Job job = StartRunning(worker, "job", 1, more);
    for (const int64_t step : steps) Save(worker, job, step);
    EXPECT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
    Gone(worker, job);
    EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
    return Get(job.uid());
  }
  StatusOr<v1::Operation> ResumeFrom(const std::string& uid, bool allow_older, bool fresh) {
    v1::ResumeRequest request;
    request.set_allow_older(allow_older);
    request.set_fresh(fresh);
    return Do(&VerbsApi::Resume, request, uid);
  }
  // Rank 0 did not find its base.
  static v1::WorkerMessage MissingMessage(const v1::Job& job) {
    v1::WorkerMessage message = RankMessage(job, 0, v1::FAULTED);
    v1::RankReport& report = *message.mutable_rank_report();
    report.set_cause(v1::STORAGE);
    report.set_reason(kReason);
    report.mutable_status()->set_exited(true);
    report.mutable_status()->set_exit_code(73);
    report.mutable_status()->set_message("step 20 (xxh3:20) is expected in /ckpt/job");
    return message;
  }
  // The placement that is under way fails for that, and its ranks are gone.
  void Miss(Worker& worker, const std::string& uid) {
    const v1::Job job = Get(uid);
    ASSERT_EQ(job.state(), v1::ADMITTED);
    Accept(worker, job);
    Report(worker, MissingMessage(job));
    Gone(worker, job);
  }
  void Start(Worker& worker, const std::string& uid, int64_t from) {
    const v1::Job job = Get(uid);
    ASSERT_EQ(job.state(), v1::ADMITTED);
    Accept(worker, job);
    ReportStart(worker, job, from);
    Report(worker, RankMessage(job, 0, v1::READY));
    EXPECT_EQ(Get(uid).state(), v1::RUNNING);
  }
  void ReportStart(Worker& worker, const v1::Job& job, int64_t from,
                   const std::string& damaged = "") {
    v1::WorkerMessage info;
    info.mutable_job_report()->set_job_uid(job.uid());
    info.mutable_job_report()->set_epoch(job.epoch());
    info.mutable_job_report()->mutable_run_info()->set_resumed_from_step(from);
    if (!damaged.empty())
      info.mutable_job_report()->mutable_run_info()->add_damaged_checkpoints(damaged);
    Report(worker, std::move(info));
  }
  void ExpectWaits(const std::string& uid) {
    const v1::Job job = Get(uid);
    EXPECT_EQ(job.state(), v1::QUEUED);
    EXPECT_TRUE(job.ranks().empty());
    ASSERT_EQ(ConditionsOf(job), "Waiting");
    EXPECT_TRUE(job.conditions(0).message().starts_with("ExpectedCheckpointMissing: step 20"))
        << job.conditions(0).message();
    EXPECT_EQ(job.cause(), v1::CAUSE_UNSPECIFIED);
    EXPECT_EQ(job.failed_rank(), -1);
  }
};

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

TEST_F(BasesTest, AJobThatSavesNothingExpectsNothing) {
  Worker worker = NewWorker("a", 1);
  v1::Job job = StartRunning(worker, "job", 1, "checkpoint: {directory: none}\n");
  Save(worker, job, 20);  // it cannot; a confused rank's word binds nobody
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  EXPECT_FALSE(LastAssign(worker).has_base());
}

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
  Start(worker, job.uid(), 10);
  Save(worker, Get(job.uid()), 15);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, Get(job.uid()));
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(LastAssign(worker).base().step(), 15);
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
  PassBeating(seconds(2), {&worker});
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
