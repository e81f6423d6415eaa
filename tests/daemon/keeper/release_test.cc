// Releases whose save fails, and resumes that come while a release is under way: nothing is given
// up unasked, and every operation ends with what is true.
#include "common/control/epoch.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

class ReleaseTest : public CoreTest {
 protected:
  // A job that has trained to step 12 and saved step 10.
  v1::Job StartTrained(Worker& worker, int slots = 1) {
    const v1::Job job = StartRunning(worker, "demo", slots);
    Report(worker, StepsMessage(job, 1, 12));
    Report(worker, SavedMessage(job, 10));
    return job;
  }
  StatusOr<v1::Operation> Discard(const std::string& uid) {
    v1::PauseRequest request;
    request.set_mode(v1::PauseRequest::RELEASE);
    request.set_discard(true);
    return Do(&VerbsApi::Pause, request, uid);
  }
  static v1::Command LastRelease(const Worker& worker) {
    return LastCommand(worker, v1::Command::RELEASE);
  }
  static v1::WorkerMessage SavedDone(const v1::Command& command, int64_t step) {
    v1::WorkerMessage done = DoneMessage(command, step - 1, step);
    *done.mutable_job_report()->mutable_command_done()->mutable_checkpoint() = Saved(step);
    return done;
  }
  // The ranks save and end.
  void FinishRelease(Worker& worker, const v1::Job& job, int64_t step) {
    Report(worker, SavedDone(LastRelease(worker), step));
    Report(worker, EndedMessage(job, step, false));
    Gone(worker, job);
  }
  void BeginAgain(Worker& worker, const std::string& uid) {
    const v1::Job job = Get(uid);
    ASSERT_EQ(job.state(), v1::ADMITTED);
    Accept(worker, job);
    for (int rank = 0; rank < job.ranks_size(); ++rank)
      Report(worker, RankMessage(job, rank, v1::READY));
  }
  std::string ErrorOf(const std::string& operation) { return Op(operation).error().reason(); }
};

TEST_F(ReleaseTest, AFailedSaveHoldsTheRanksAndTheReleaseMayComeAgain) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartTrained(worker, 2);
  std::set<std::string> ids;
  for (int i = 0; i < 20; ++i) {
    const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
    ASSERT_TRUE(pause.ok()) << pause.status();
    EXPECT_EQ(Get(job.uid()).state(), v1::RELEASING);
    const v1::Command release = LastRelease(worker);
    EXPECT_TRUE(ids.insert(release.command_id()).second)
        << "ranks follow an id once: each try has its own";
    Report(worker, HeldMessage(release, i == 0 ? 12 : 0, 13));
    for (const int rank : {0, 1}) Report(worker, RankMessage(job, rank, v1::HELD));
    const v1::Job held = Get(job.uid());
    EXPECT_EQ(held.state(), v1::PAUSED_HELD);
    EXPECT_EQ(held.goal(), v1::GOAL_HOLD);
    EXPECT_EQ(control::CountOfEpoch(held.epoch()), 1);
    EXPECT_EQ(ConditionsOf(held), "CheckpointStale");
    EXPECT_NE(held.message().find("No space left"), std::string::npos) << held.message();
    const v1::Operation ended = Op(pause->name());
    EXPECT_TRUE(ended.done());
    EXPECT_EQ(ended.error().reason(), "SAVE_FAILED");
    EXPECT_NE(ended.error().message().find("No space left"), std::string::npos);
    EXPECT_EQ(ended.step(), 13);
  }
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  EXPECT_EQ(core_->ledger().Allocations().size(), 1u) << "its slots are its own";
  PassBeating(seconds(700), {&worker});
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0) << "no time to stop is left over";
  // There is room again.
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  FinishRelease(worker, job, 13);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  EXPECT_EQ(ErrorOf(pause->name()), "");
  EXPECT_EQ(Op(pause->name()).checkpoint().step(), 13);
  EXPECT_EQ(core_->keeper().num_refused(), 0);
}

TEST_F(ReleaseTest, TheAnswerMayComeAfterARestartAndTwice) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  const v1::Command first = LastRelease(worker);
  StartCore();
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_EQ(LastRelease(worker).command_id(), first.command_id()) << "again, with its id";
  Report(worker, HeldMessage(first, 12, 13));
  EXPECT_EQ(ErrorOf(pause->name()), "SAVE_FAILED");
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  StartCore();
  Connect(&worker, 1, {Held(job, v1::HELD)});
  EXPECT_TRUE(LastRelease(worker).command_id().empty()) << "it was answered";
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  const auto again = Pause(job.uid(), v1::PauseRequest::RELEASE);
  Report(worker, HeldMessage(first, 12, 13));
  EXPECT_EQ(Get(job.uid()).state(), v1::RELEASING) << "that is not the answer to this one";
  EXPECT_FALSE(Op(again->name()).done());
  FinishRelease(worker, job, 13);
  EXPECT_EQ(ErrorOf(again->name()), "");
}

// A job is STARTING until its last rank is heard; those that were heard may have steps to save.
class ReleaseAtStartTest : public ReleaseTest,
                           public ::testing::WithParamInterface<v1::RankState> {};

TEST_P(ReleaseAtStartTest, RanksAtWorkAreStoppedWithASave) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job before = StartTrained(worker, 2);
  ASSERT_TRUE(Pause(before.uid(), v1::PauseRequest::RELEASE).ok());
  FinishRelease(worker, before, 13);
  ASSERT_TRUE(Resume(before.uid()).ok());
  const v1::Job job = Get(before.uid());
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, GetParam()));
  ASSERT_EQ(Get(job.uid()).state(), v1::STARTING);
  const int kills = CountCommands(worker, v1::Command::KILL);
  const std::string last = LastRelease(worker).command_id();
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  const bool works = GetParam() != v1::LOADING;
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL) - kills, works ? 0 : 1);
  EXPECT_EQ(LastRelease(worker).command_id() != last, works);
}

INSTANTIATE_TEST_SUITE_P(States, ReleaseAtStartTest,
                         ::testing::Values(v1::TRAINING, v1::HELD, v1::LOADING),
                         [](const auto& state) { return v1::RankState_Name(state.param); });

TEST_F(ReleaseTest, AnAgentThatRefusesAnOldReleaseKillsNobody) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  v1::WorkerMessage refused;
  refused.mutable_command_ack()->set_command_id(LastRelease(worker).command_id());
  Report(worker, HeldMessage(LastRelease(worker), 12, 13));
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Report(worker, refused);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITH_SAVE), 0);
}

TEST_F(ReleaseTest, DiscardEndsTheRanksEvenIfTheSaveFails) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto pause = Discard(job.uid());
  ASSERT_TRUE(pause.ok()) << pause.status();
  EXPECT_TRUE(LastRelease(worker).command_id().empty());
  v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::STOP_WITH_SAVE), 12, 13);
  done.mutable_job_report()->mutable_command_done()->set_error("No space left on device");
  Report(worker, done);
  EXPECT_EQ(Get(job.uid()).state(), v1::RELEASING);
  Report(worker, EndedMessage(job, 13, false, /*save_failed=*/true));
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ErrorOf(pause->name()), "") << "that is what was asked for";
  EXPECT_NE(Op(pause->name()).result().find("from step 10"), std::string::npos);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "CheckpointStale");
}

TEST_F(ReleaseTest, DiscardMayFollowAReleaseThatIsUnderWay) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  EXPECT_EQ(rpc::ReasonOf(Pause(job.uid(), v1::PauseRequest::RELEASE).status()), "WRONG_STATE");
  const auto discard = Discard(job.uid());
  ASSERT_TRUE(discard.ok()) << discard.status();
  EXPECT_EQ(ErrorOf(pause->name()), "SUPERSEDED");
  EXPECT_EQ(rpc::ReasonOf(Discard(job.uid()).status()), "WRONG_STATE");
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0) << "the save may succeed";
  Report(worker, HeldMessage(LastRelease(worker), 12, 13));
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ErrorOf(discard->name()), "");
}

TEST_F(ReleaseTest, DiscardIsOfReleasesAndNeedsNoDirectory) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, "checkpoint: {directory: none}\n");
  Report(worker, StepsMessage(job, 1, 5));
  v1::PauseRequest hold;
  hold.set_discard(true);
  EXPECT_EQ(rpc::ReasonOf(Do(&VerbsApi::Pause, hold, job.uid()).status()), "INVALID_REQUEST");
  const auto refused = Pause(job.uid(), v1::PauseRequest::RELEASE);
  EXPECT_NE(base::Message(refused.status()).find("--discard"), std::string::npos);
  const auto discard = Discard(job.uid());
  ASSERT_TRUE(discard.ok()) << discard.status();
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITHOUT_SAVE), 1);
  Gone(worker, job);
  EXPECT_EQ(ErrorOf(discard->name()), "");
}

TEST_F(ReleaseTest, ACancelMeanwhileIsNotHeldUp) {
  Worker worker = NewWorker("n1", 1);
  for (const bool save : {false, true}) {
    worker.link->received.clear();
    const v1::Job job = StartRunning(worker, save ? "b" : "a", 1);
    Report(worker, StepsMessage(job, 1, 12));
    ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
    const auto cancel = Cancel(job.uid(), save);
    ASSERT_TRUE(cancel.ok());
    Report(worker, HeldMessage(LastRelease(worker), 12, 13));
    EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1);
    Gone(worker, job);
    EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
    EXPECT_EQ(ErrorOf(cancel->name()), save ? "SAVE_FAILED" : "");
  }
}

TEST_F(ReleaseTest, ACancelThatWasToSaveSaysThatItDidNot) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto cancel = Cancel(job.uid(), /*save=*/true);
  v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::STOP_WITH_SAVE), 12, 13);
  done.mutable_job_report()->mutable_command_done()->set_error("No space left on device");
  Report(worker, done);
  Report(worker, EndedMessage(job, 13, false, /*save_failed=*/true));
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  EXPECT_EQ(ErrorOf(cancel->name()), "SAVE_FAILED");
  EXPECT_NE(Op(cancel->name()).error().message().find("No space left"), std::string::npos);
  // One that has nothing to save, and one that does not want to, have succeeded.
  const v1::Job queued = Submit(TinyJob("queued", 2));
  const auto other = Cancel(queued.uid(), /*save=*/true);
  EXPECT_EQ(ErrorOf(other->name()), "");
}

// Ranks on two nodes: what rank 0 says comes after the kill that another rank's end has caused.
TEST_F(ReleaseTest, AHeldThatComesTooLateHoldsNobody) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = Submit(TinyJob("demo", 2));
  Accept(a, job);
  Accept(b, job);
  Worker& zero = Get(job.uid()).ranks(0).node() == "a" ? a : b;
  Worker& one = &zero == &a ? b : a;
  Report(zero, RankMessage(job, 0, v1::READY));
  Report(one, RankMessage(job, 1, v1::READY));
  Report(zero, StepsMessage(job, 1, 12));
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  v1::WorkerMessage died = RankMessage(job, 1, v1::FAULTED);
  died.mutable_rank_report()->mutable_status()->set_exited(true);
  died.mutable_rank_report()->mutable_status()->set_exit_signal(9);
  Report(one, died);
  ASSERT_EQ(CountCommands(zero, v1::Command::KILL), 1);
  Report(zero, HeldMessage(LastRelease(zero), 12, 13));
  EXPECT_EQ(Get(job.uid()).state(), v1::RELEASING) << "its ranks are ending";
  Gone(zero, job);
  Gone(one, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ErrorOf(pause->name()), "SAVE_FAILED");
}

// --- Agents and ranks that were there before the verb RELEASE.

TEST_F(ReleaseTest, AnAgentThatDoesNotKnowTheVerbGetsTheOldOne) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  v1::WorkerMessage refused;
  refused.mutable_command_ack()->set_command_id(LastRelease(worker).command_id());
  refused.mutable_command_ack()->set_message("unknown verb 8");
  Report(worker, refused);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  const v1::Command stop = LastCommand(worker, v1::Command::STOP_WITH_SAVE);
  ASSERT_FALSE(stop.command_id().empty());
  Report(worker, SavedDone(stop, 13));
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ErrorOf(pause->name()), "");
}

TEST_F(ReleaseTest, ARankThatDoesNotKnowTheVerbGetsTheOldOne) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  const v1::Command release = LastRelease(worker);
  v1::WorkerMessage refused = DoneMessage(release, 0, 0);
  refused.mutable_job_report()->mutable_command_done()->set_error("a rank knows no verb 8");
  Report(worker, refused);
  EXPECT_EQ(Get(job.uid()).state(), v1::RELEASING);
  const v1::Command stop = LastCommand(worker, v1::Command::STOP_WITH_SAVE);
  ASSERT_FALSE(stop.command_id().empty());
  EXPECT_NE(stop.command_id(), release.command_id()) << "its agent has seen that one";
  // Such ranks end even if the save fails: what is said is true all the same.
  v1::WorkerMessage failed = DoneMessage(stop, 12, 13);
  failed.mutable_job_report()->mutable_command_done()->set_error("No space left on device");
  Report(worker, failed);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ErrorOf(pause->name()), "SAVE_FAILED");
}

// --- Resumes behind a release.

TEST_F(ReleaseTest, AResumeBehindAReleaseTakesEffectAfterIt) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  const auto resume = Resume(job.uid());
  ASSERT_TRUE(resume.ok()) << resume.status();
  EXPECT_EQ(Get(job.uid()).state(), v1::RELEASING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_RUN);
  EXPECT_FALSE(Op(pause->name()).done()) << "it is still under way";
  EXPECT_EQ(Op(resume->name()).progress(), "waiting for the release that is under way");
  EXPECT_EQ(rpc::ReasonOf(Resume(job.uid()).status()), "WRONG_STATE") << "it is to run already";
  StartCore();
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  FinishRelease(worker, job, 13);
  EXPECT_EQ(ErrorOf(pause->name()), "");
  EXPECT_EQ(Op(pause->name()).checkpoint().step(), 13);
  EXPECT_FALSE(Op(resume->name()).done());
  EXPECT_EQ(control::EpochText(Get(job.uid()).epoch()), "2.1") << "placed at once";
  BeginAgain(worker, job.uid());
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_TRUE(Op(resume->name()).done());
  EXPECT_EQ(ErrorOf(resume->name()), "");
  EXPECT_EQ(core_->keeper().num_refused(), 0);
}

TEST_F(ReleaseTest, AResumeBehindAReleaseWhoseSaveFailsLetsTheRanksGoOn) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  const auto resume = Resume(job.uid());
  ASSERT_TRUE(resume.ok()) << resume.status();
  Report(worker, HeldMessage(LastRelease(worker), 12, 13));
  EXPECT_EQ(ErrorOf(pause->name()), "SAVE_FAILED");
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_RUN);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "CheckpointStale");
  EXPECT_FALSE(Op(resume->name()).done());
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::RESUME), 0, 13));
  EXPECT_TRUE(Op(resume->name()).done());
  EXPECT_EQ(ErrorOf(resume->name()), "");
  EXPECT_EQ(control::CountOfEpoch(Get(job.uid()).epoch()), 1);
}

TEST_F(ReleaseTest, AnotherReleaseTakesAQueuedResumeBack) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  const auto resume = Resume(job.uid());
  const auto again = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ErrorOf(pause->name()), "SUPERSEDED");
  EXPECT_EQ(ErrorOf(resume->name()), "SUPERSEDED");
  EXPECT_EQ(CountCommands(worker, v1::Command::RELEASE), 1) << "one is under way";
  FinishRelease(worker, job, 13);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ErrorOf(again->name()), "");
  EXPECT_EQ(Op(again->name()).checkpoint().step(), 13);
}

// A stop that was told to discard cannot be called back, but it can be asked for the truth; one
// that keeps its ranks can.
TEST_F(ReleaseTest, TheNewestReleaseSaysWhatMayBeLost) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  ASSERT_TRUE(Discard(job.uid()).ok());
  ASSERT_TRUE(Resume(job.uid()).ok());
  const auto kept = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(kept.ok()) << kept.status();
  v1::WorkerMessage failed = DoneMessage(LastCommand(worker, v1::Command::STOP_WITH_SAVE), 12, 13);
  failed.mutable_job_report()->mutable_command_done()->set_error("No space left on device");
  Report(worker, failed);
  Gone(worker, job);
  EXPECT_EQ(ErrorOf(kept->name()), "SAVE_FAILED");

  ASSERT_TRUE(Resume(job.uid()).ok());
  BeginAgain(worker, job.uid());
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  ASSERT_TRUE(Discard(job.uid()).ok());
  ASSERT_TRUE(Resume(job.uid()).ok());
  const auto again = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(again.ok()) << again.status();
  const int kills = CountCommands(worker, v1::Command::KILL);
  Report(worker, HeldMessage(LastRelease(worker), 0, 13));
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), kills);
}

TEST_F(ReleaseTest, AResumeBehindAReleaseOfAStartingJob) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  Accept(worker, job);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(Resume(job.uid()).ok());
  Gone(worker, job);
  EXPECT_EQ(ErrorOf(pause->name()), "");
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(control::CountOfEpoch(Get(job.uid()).epoch()), 2);
}

TEST_F(ReleaseTest, ACancelTakesAQueuedResumeBack) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  const auto resume = Resume(job.uid());
  ASSERT_TRUE(Cancel(job.uid(), /*save=*/false).ok());
  EXPECT_EQ(ErrorOf(resume->name()), "SUPERSEDED");
  FinishRelease(worker, job, 13);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
}

// --- Failed saves of a job that trains, and the question whether an epoch is open.

TEST_F(ReleaseTest, AFailedSaveIsAConditionUntilOneSucceeds) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartTrained(worker);
  v1::WorkerMessage failed = SavedMessage(job, 0);
  failed.mutable_job_report()->set_checkpoint_failed("step 20: FENCE is gone");
  Report(worker, failed);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "CheckpointStale");
  EXPECT_EQ(Get(job.uid()).conditions(0).message(), "a save failed: step 20: FENCE is gone");
  ASSERT_EQ(Events("CheckpointFailed").size(), 1u);
  EXPECT_EQ(Events("CheckpointFailed")[0].cause(), v1::STORAGE);
  Report(worker, SavedMessage(job, 30));
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
}

class EpochQueryTest : public ReleaseTest {
 protected:
  // The coordinator's answer: "open", "closed"; "": none.
  std::string Ask(Worker& worker, const std::string& uid, int64_t epoch) {
    v1::WorkerMessage message;
    message.mutable_epoch_query()->set_job_uid(uid);
    message.mutable_epoch_query()->set_epoch(epoch);
    message.mutable_epoch_query()->set_query_id(++asked_);
    core_->sessions().OnMessage(worker.session, message);
    Settle();
    std::string answer;
    for (const auto& heard : worker.link->received) {
      if (!heard.has_epoch_answer() || heard.epoch_answer().query_id() != asked_) continue;
      EXPECT_EQ(heard.epoch_answer().job_uid(), uid);
      EXPECT_EQ(heard.epoch_answer().epoch(), epoch);
      answer = heard.epoch_answer().open() ? "open" : "closed";
    }
    return answer;
  }
  int64_t asked_ = 0;
};

TEST_F(EpochQueryTest, OnlyTheEpochThatThisNodeHoldsIsOpen) {
  Worker worker = NewWorker("n1", 1);
  Worker other = NewWorker("n2", 1);
  const v1::Job job = StartTrained(worker);
  EXPECT_EQ(Ask(worker, job.uid(), job.epoch()), "open");
  EXPECT_EQ(Ask(worker, job.uid(), job.epoch() + 1), "closed");
  EXPECT_EQ(Ask(worker, "nobody", job.epoch()), "closed");
  EXPECT_EQ(Ask(other, job.uid(), job.epoch()), "closed") << "nothing of it is there";
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0) << "a question ends nobody";
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  EXPECT_EQ(Ask(worker, job.uid(), job.epoch()), "open") << "it saves";
  FinishRelease(worker, job, 13);
  EXPECT_EQ(Ask(worker, job.uid(), job.epoch()), "closed");
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(Ask(worker, job.uid(), job.epoch()), "closed");
  BeginAgain(worker, job.uid());
  EXPECT_EQ(Ask(worker, job.uid(), job.epoch()), "closed");
  EXPECT_EQ(Ask(worker, job.uid(), job.epoch() + 1), "open");
  ASSERT_TRUE(Kill(job.uid()).ok());
  EXPECT_EQ(Ask(worker, job.uid(), job.epoch() + 1), "closed") << "it is being killed";
}

}  // namespace
}  // namespace mt::daemon
