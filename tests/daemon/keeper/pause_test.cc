// Pause, resume, checkpoint: the commands, their answers, and the operations that wait for them.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PauseTest : public CoreTest {
 protected:
  void HoldAll(Worker& worker, const v1::Job& job, int64_t step) {
    for (int rank = 0; rank < job.ranks_size(); ++rank) {
      v1::WorkerMessage held = RankMessage(job, rank, v1::HELD);
      held.mutable_rank_report()->mutable_status()->set_step(step);
      Report(worker, held);
    }
  }
  // A job that is held after step 12.
  v1::Job StartHeld(Worker& worker, const std::string& name, int slots) {
    const v1::Job job = StartRunning(worker, name, slots);
    EXPECT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
    Report(worker, DoneMessage(LastCommand(worker, v1::Command::HOLD), 11, 12));
    HoldAll(worker, job, 12);
    EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
    return Get(job.uid());
  }
};

TEST_F(PauseTest, HoldIsDoneWhenEveryRankIsHeld) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartRunning(worker, "demo", 2);
  const auto pause = Pause(job.uid(), v1::PauseRequest::MODE_UNSPECIFIED, "p1");
  ASSERT_TRUE(pause.ok()) << pause.status();
  EXPECT_EQ(pause->mode(), "hold");
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_HOLD);
  ASSERT_EQ(CountCommands(worker, v1::Command::HOLD), 1);
  EXPECT_EQ(Pause(job.uid(), v1::PauseRequest::MODE_UNSPECIFIED, "p1")->name(), pause->name());
  EXPECT_EQ(CountCommands(worker, v1::Command::HOLD), 1) << "repeated, it acts once";
  HoldAll(worker, job, 12);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING) << "the command itself is not answered yet";
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::HOLD), 11, 12));
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  const v1::Operation done = Op(pause->name());
  EXPECT_TRUE(done.done());
  EXPECT_FALSE(done.has_error());
  EXPECT_EQ(done.word_step(), 11);
  EXPECT_EQ(done.step(), 12);
  const std::vector<v1::Event> changes = Events("StateChanged");
  const v1::Event& last = changes.back();
  EXPECT_EQ(last.to(), v1::PAUSED_HELD);
  EXPECT_EQ(last.from(), v1::PAUSING);
  EXPECT_EQ(last.word_step(), 11);
  EXPECT_EQ(last.step(), 12);
  EXPECT_EQ(last.actor(), "tester");
  EXPECT_EQ(last.operation(), pause->name());
  EXPECT_EQ(last.job(), "default/demo");
  EXPECT_EQ(core_->keeper().num_refused(), 0);
}

TEST_F(PauseTest, ResumeGoesOnAndAHeldLeftOverFromBeforeDoesNotCount) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartHeld(worker, "demo", 1);
  const auto resume = Resume(job.uid());
  ASSERT_TRUE(resume.ok()) << resume.status();
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_FALSE(Op(resume->name()).done());
  // Paused again before the ranks have heard of the resume: they are still HELD.
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  ASSERT_TRUE(pause.ok());
  EXPECT_EQ(Op(resume->name()).error().code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(Op(resume->name()).error().reason(), "SUPERSEDED");
  EXPECT_NE(Op(resume->name()).error().message().find(pause->name()), std::string::npos);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING);
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::RESUME), 0, 12));
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING) << "the newer command is not answered";
  Report(worker, RankMessage(job, 0, v1::TRAINING));
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::HOLD), 13, 14));
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING);
  HoldAll(worker, job, 14);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  const auto again = Resume(job.uid());
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::RESUME), 0, 14));
  EXPECT_TRUE(Op(again->name()).done());
  EXPECT_FALSE(Op(again->name()).has_error());
}

TEST_F(PauseTest, AResumeTakesThePlaceOfAPendingHold) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  const v1::Command hold = LastCommand(worker, v1::Command::HOLD);
  const auto resume = Resume(job.uid());
  ASSERT_TRUE(resume.ok());
  EXPECT_EQ(Op(pause->name()).error().reason(), "SUPERSEDED");
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  // Both commands act, in order.
  Report(worker, DoneMessage(hold, 3, 4));
  Report(worker, RankMessage(job, 0, v1::HELD));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_FALSE(Op(resume->name()).done());
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::RESUME), 0, 4));
  EXPECT_TRUE(Op(resume->name()).done());
}

TEST_F(PauseTest, AJobPausedWhileItStartsWaitsOnceItIsReady) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = Submit(TinyJob("demo", 2));
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  ASSERT_TRUE(pause.ok()) << pause.status();
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(CountCommands(worker, v1::Command::HOLD), 0) << "nobody is there to hear it";
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, v1::READY));
  EXPECT_EQ(CountCommands(worker, v1::Command::HOLD), 1);
  Report(worker, RankMessage(job, 1, v1::READY));
  EXPECT_EQ(Get(job.uid()).state(), v1::STARTING);
  // They may have begun: then it is a pause like any other.
  Report(worker, RankMessage(job, 0, v1::TRAINING));
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSING);
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::HOLD), 1, 2));
  HoldAll(worker, job, 2);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  EXPECT_TRUE(Op(pause->name()).done());
}

TEST_F(PauseTest, APlacementThatFailsKeepsTheGoal) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = Submit(TinyJob("demo", 1));
  const auto pause = Pause(first.uid(), v1::PauseRequest::HOLD);
  Accept(worker, first, /*accepted=*/false);
  const v1::Job job = Get(first.uid());
  ASSERT_EQ(job.state(), v1::ADMITTED);
  EXPECT_TRUE(worker.link->received.back().assign().hold());
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, v1::READY));
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
  EXPECT_TRUE(Op(pause->name()).done());
  EXPECT_EQ(CountCommands(worker, v1::Command::HOLD), 0) << "the assignment said it";
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(CountCommands(worker, v1::Command::RESUME), 1);
}

TEST_F(PauseTest, ReleaseSavesAndFreesTheSlotsAndResumePlacesAgain) {
  Worker worker = NewWorker("n1", 1);
  v1::Job job = StartRunning(worker, "demo", 1, "checkpoint: {fresh: true}\n");
  EXPECT_TRUE(worker.link->received[1].assign().spec().checkpoint().fresh());
  Report(worker, StepsMessage(job, 1, 7));
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(pause.ok()) << pause.status();
  EXPECT_EQ(Get(job.uid()).state(), v1::RELEASING);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "Saving");
  const v1::Command stop = LastCommand(worker, v1::Command::RELEASE);
  ASSERT_FALSE(stop.command_id().empty());
  const v1::Job other = Submit(TinyJob("other", 1));
  EXPECT_EQ(other.state(), v1::QUEUED);
  v1::WorkerMessage done = DoneMessage(stop, 7, 8);
  *done.mutable_job_report()->mutable_command_done()->mutable_checkpoint() = Saved(8);
  Report(worker, done);
  Report(worker, EndedMessage(job, 8, false));
  Gone(worker, job);
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(job.goal(), v1::GOAL_RELEASE);
  EXPECT_EQ(ConditionsOf(job), "");
  EXPECT_EQ(Op(pause->name()).checkpoint().step(), 8);
  EXPECT_EQ(Op(pause->name()).word_step(), 7);
  EXPECT_EQ(Get(other.uid()).state(), v1::ADMITTED) << "its slot serves another";
  const auto resume = Resume(job.uid());
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  ASSERT_TRUE(Kill(other.uid()).ok());
  Gone(worker, Get(other.uid()));
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::ADMITTED);
  EXPECT_EQ(control::CountOfEpoch(job.epoch()), 2);
  const v1::Assign assign = worker.link->received.back().assign();
  EXPECT_FALSE(assign.spec().checkpoint().fresh()) << "it goes on from what it saved";
  EXPECT_EQ(assign.ended_job_uids_size(), 0) << "the killed one has another directory";
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, v1::READY));
  EXPECT_TRUE(Op(resume->name()).done());
  EXPECT_EQ(core_->keeper().num_refused(), 0);
}

TEST_F(PauseTest, ReleaseWithoutACheckpointDirectoryIsRefused) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartRunning(worker, "demo", 1, "checkpoint: {directory: none}\n");
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  EXPECT_EQ(rpc::ReasonOf(pause.status()), "NO_CHECKPOINTS");
  EXPECT_NE(base::Message(pause.status()).find("steps would be lost"), std::string::npos);
  EXPECT_EQ(rpc::ReasonOf(Checkpoint(job.uid()).status()), "NO_CHECKPOINTS");
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  // Nothing was trained: nothing is lost.
  const v1::Job starting = Submit(TinyJob("starting", 1, "checkpoint: {directory: none}\n"));
  ASSERT_TRUE(Pause(starting.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, starting);
  EXPECT_EQ(Get(starting.uid()).state(), v1::PAUSED_RELEASED);
}

TEST_F(PauseTest, AReleaseWhoseRankDiesLeavesTheLastCheckpointAndSaysSo) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 20));
  Report(worker, SavedMessage(job, 10));
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  v1::WorkerMessage died = RankMessage(job, 0, v1::FAULTED);
  died.mutable_rank_report()->mutable_status()->set_exited(true);
  died.mutable_rank_report()->mutable_status()->set_exit_signal(9);
  Report(worker, died);
  EXPECT_EQ(Get(job.uid()).state(), v1::RELEASING);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "CheckpointStale");
  EXPECT_EQ(Op(pause->name()).error().reason(), "SAVE_FAILED");
  EXPECT_EQ(Op(pause->name()).checkpoint().step(), 10);
  EXPECT_NE(Op(pause->name()).error().message().find("trained to step 20, saved is step 10"),
            std::string::npos)
      << Op(pause->name()).error().message();
  EXPECT_NE(Get(job.uid()).message().find("from step 10"), std::string::npos);
}

TEST_F(PauseTest, AReleaseThatTakesTooLongIsKilled) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 3));
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  PassBeating(seconds(602), {&worker});
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "CheckpointStale");
  EXPECT_EQ(Op(pause->name()).error().reason(), "SAVE_FAILED");
}

TEST_F(PauseTest, AQueuedJobIsReleasedAtOnce) {
  const v1::Job job = Submit(TinyJob("demo", 1));
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  ASSERT_TRUE(pause.ok());
  EXPECT_TRUE(pause->done());
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  Worker worker = NewWorker("n1", 1);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
}

TEST_F(PauseTest, CheckpointNowIsCountedOnceThoughToldTwice) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto checkpoint = Checkpoint(job.uid(), "c1");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "Saving");
  const auto second = Checkpoint(job.uid(), "c2");
  EXPECT_EQ(rpc::ReasonOf(second.status()), "WRONG_STATE");
  EXPECT_NE(base::Message(second.status()).find(checkpoint->name()), std::string::npos);
  EXPECT_EQ(Checkpoint(job.uid(), "c1")->name(), checkpoint->name());
  const v1::Command command = LastCommand(worker, v1::Command::CHECKPOINT_NOW);
  Report(worker, SavedMessage(job, 6));
  v1::WorkerMessage done = DoneMessage(command, 5, 6);
  *done.mutable_job_report()->mutable_command_done()->mutable_checkpoint() = Saved(6);
  Report(worker, done);
  Report(worker, done);
  EXPECT_TRUE(Op(checkpoint->name()).done());
  EXPECT_EQ(Op(checkpoint->name()).checkpoint().path(), "/ckpt/step-6");
  EXPECT_EQ(Op(checkpoint->name()).word_step(), 5);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  EXPECT_EQ(Events("CheckpointSaved").size(), 1u);
  ASSERT_TRUE(Checkpoint(job.uid()).ok()) << "the next may come";
  v1::WorkerMessage deleted = SavedMessage(job, 6);
  deleted.mutable_job_report()->mutable_checkpoints_deleted()->add_paths("/ckpt/step-6");
  Report(worker, SavedMessage(job, 9));
  Report(worker, deleted);
  v1::ListCheckpointsRequest list;
  list.mutable_job()->set_uid(job.uid());
  v1::ListCheckpointsResponse listed;
  ASSERT_TRUE(core_->api().jobs().ListCheckpoints(list, &listed).ok());
  ASSERT_EQ(listed.checkpoints_size(), 1);
  EXPECT_EQ(listed.checkpoints(0).step(), 9);
}

TEST_F(PauseTest, AFailedSaveFailsItsOperationAndTrainingGoesOn) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto checkpoint = Checkpoint(job.uid());
  v1::WorkerMessage failed = DoneMessage(LastCommand(worker, v1::Command::CHECKPOINT_NOW), 5, 6);
  failed.mutable_job_report()->mutable_command_done()->set_error("No space left on device");
  Report(worker, failed);
  EXPECT_EQ(Op(checkpoint->name()).error().reason(), "SAVE_FAILED");
  EXPECT_NE(Op(checkpoint->name()).error().message().find("No space left"), std::string::npos);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
}

TEST_F(PauseTest, CommandsSurviveBothSidesAndActOnce) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto checkpoint = Checkpoint(job.uid());
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  const std::string hold_id = LastCommand(worker, v1::Command::HOLD).command_id();
  StartCore();
  EXPECT_FALSE(Op(checkpoint->name()).done());
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  std::vector<v1::Command::Verb> verbs;
  for (const auto& message : worker.link->received) {
    if (message.has_command()) verbs.push_back(message.command().verb());
  }
  EXPECT_EQ(verbs, (std::vector<v1::Command::Verb>{v1::Command::CHECKPOINT_NOW, v1::Command::HOLD}))
      << "again, in order";
  EXPECT_EQ(LastCommand(worker, v1::Command::HOLD).command_id(), hold_id);
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::HOLD), 3, 4));
  HoldAll(worker, job, 4);
  EXPECT_TRUE(Op(pause->name()).done());
  StartCore();
  Connect(&worker, 1, {Held(job, v1::HELD)});
  EXPECT_EQ(CountCommands(worker, v1::Command::HOLD), 0) << "it was answered";
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_HELD);
}

TEST_F(PauseTest, RankZerosReportsAreTakenOnceWhoeverSendsThem) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::WorkerMessage failed;
  failed.mutable_job_report()->set_job_uid(job.uid());
  failed.mutable_job_report()->set_epoch(job.epoch());
  failed.mutable_job_report()->set_checkpoint_failed("full");
  failed.mutable_job_report()->set_rank_seq(4);
  Report(worker, failed);
  // Another agent process: its numbers start anew, the rank's do not.
  core_->sessions().OnClosed(worker.session);
  Worker restarted{.node = "n1", .uid = base::NewUid(), .link = nullptr};
  Connect(&restarted, 1, {Held(job, v1::TRAINING)});
  Report(restarted, failed);
  EXPECT_EQ(Events("CheckpointFailed").size(), 1u);
  failed.mutable_job_report()->set_rank_seq(5);
  Report(restarted, failed);
  EXPECT_EQ(Events("CheckpointFailed").size(), 2u);
}

TEST_F(PauseTest, AnAgentThatDoesNotKnowAWordLeavesTheJobAsItWas) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto refuse = [&](v1::Command::Verb verb) {
    v1::WorkerMessage ack;
    ack.mutable_command_ack()->set_command_id(LastCommand(worker, verb).command_id());
    ack.mutable_command_ack()->set_message("unknown verb");
    Report(worker, ack);
  };
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  refuse(v1::Command::HOLD);
  EXPECT_EQ(Op(pause->name()).error().reason(), "WORD_REFUSED");
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_RUN);
  const auto checkpoint = Checkpoint(job.uid());
  refuse(v1::Command::CHECKPOINT_NOW);
  EXPECT_EQ(Op(checkpoint->name()).error().reason(), "WORD_REFUSED");
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
}

TEST_F(PauseTest, AHeldJobThatIsCancelledWithACheckpointSavesFirst) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartHeld(worker, "demo", 1);
  const auto cancel = Cancel(job.uid(), true);
  const v1::Command stop = LastCommand(worker, v1::Command::STOP_WITH_SAVE);
  ASSERT_FALSE(stop.command_id().empty());
  v1::WorkerMessage done = DoneMessage(stop, 0, 12);
  *done.mutable_job_report()->mutable_command_done()->mutable_checkpoint() = Saved(12);
  Report(worker, done);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  EXPECT_EQ(Op(cancel->name()).checkpoint().step(), 12);
  EXPECT_EQ(Op(cancel->name()).mode(), "checkpoint");
}

TEST_F(PauseTest, TheEndOfTheJobEndsItsOperations) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto checkpoint = Checkpoint(job.uid());
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  Report(worker, EndedMessage(job, 10, true));
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  const auto kill = Kill(job.uid());
  ASSERT_TRUE(kill.ok()) << kill.status();
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::SUCCEEDED);
  EXPECT_EQ(Op(checkpoint->name()).error().reason(), "JOB_ENDED");
  EXPECT_EQ(Op(pause->name()).error().reason(), "SUPERSEDED") << "by the kill";
  EXPECT_FALSE(Op(kill->name()).has_error());
}

}  // namespace
}  // namespace mt::daemon
