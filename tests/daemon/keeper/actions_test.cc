// What the actions of a row do where no verb or report shows it by itself: who is told what, what
// is forgotten, and what is left alone.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

class ActionsTest : public CoreTest {
 protected:
  // The stop that the worker was told, with a save or without.
  static v1::Command LastStop(const Worker& worker) {
    const v1::Command with_save = LastCommand(worker, v1::Command::STOP_WITH_SAVE);
    return with_save.command_id().empty() ? LastCommand(worker, v1::Command::STOP_WITHOUT_SAVE)
                                          : with_save;
  }
};

TEST_F(ActionsTest, APlacementThatSucceededEndsTheRowOfFailures) {
  Worker worker = NewWorker("a", 1);
  v1::Job job = Submit(TinyJob("job", 1));
  Accept(worker, job, /*accepted=*/false);
  job = Get(job.uid());
  ASSERT_EQ(control::CountOfEpoch(job.epoch()), 2) << "placed again at once";
  Accept(worker, job, /*accepted=*/false);
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::QUEUED) << "the second time it waits (R2)";
  EXPECT_TRUE(job.ranks().empty()) << "it has no ranks while it waits";
  PassBeating(seconds(6), {&worker});
  job = Get(job.uid());
  ASSERT_EQ(control::CountOfEpoch(job.epoch()), 3);
  Accept(worker, job);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, job);
  ASSERT_TRUE(Resume(job.uid()).ok());
  job = Get(job.uid());
  ASSERT_EQ(control::CountOfEpoch(job.epoch()), 4);
  Accept(worker, job, /*accepted=*/false);
  EXPECT_EQ(control::CountOfEpoch(Get(job.uid()).epoch()), 5) << "this is the first failure again";
}

TEST_F(ActionsTest, TheDeadlineIsTheCoordinatorsOwnStop) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1, "resilience: {deadline: 60s}\n");
  PassBeating(seconds(62), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_STOP);
  EXPECT_EQ(LastStop(worker).actor(), "coordinator");
  EXPECT_EQ(LastStop(worker).reason(), "its deadline of 60 s is over");
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0) << "it may save first";
}

TEST_F(ActionsTest, AKillOfAJobThatStopsNamesItselfToTheAgentOnly) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1);
  ASSERT_TRUE(Cancel(job.uid(), /*save=*/true).ok());
  ASSERT_TRUE(Kill(job.uid()).ok());
  EXPECT_EQ(LastCommand(worker, v1::Command::KILL).reason(), "killed by tester");
  EXPECT_EQ(Get(job.uid()).message(), "cancelled by tester");
}

TEST_F(ActionsTest, ACancelLeavesAStopThatIsUnderWayAlone) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  ASSERT_TRUE(Cancel(job.uid(), /*save=*/false).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0) << "the ranks are saving";
}

TEST_F(ActionsTest, ASaveThatIsOwedFailsBeforeTheJobIsReleased) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1);
  const auto save = Checkpoint(job.uid());
  ASSERT_TRUE(save.ok());
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(worker, job);
  ASSERT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(Op(save->name()).error().message(),
            "its ranks ended before they had saved: paused by tester");
  std::vector<std::string> last;
  for (const v1::Event& event : Events()) {
    if (event.operation() == save->name() || event.to() == v1::PAUSED_RELEASED)
      last.push_back(event.type());
  }
  EXPECT_EQ(last,
            (std::vector<std::string>{"OperationStarted", "OperationFailed", "StateChanged"}));
}

TEST_F(ActionsTest, AResumeThatFindsNoSlotsSaysSo) {
  const v1::Job job = Submit(TinyJob("job", 1));
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  ASSERT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  const auto resume = Resume(job.uid());
  ASSERT_TRUE(resume.ok());
  EXPECT_EQ(Op(resume->name()).progress(), "waiting for slots");
}

TEST_F(ActionsTest, AResumeFindsRanksThatAreReadyAlready) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Submit(TinyJob("job", 1));
  Accept(worker, job);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  Report(worker, RankMessage(job, 0, v1::READY));
  ASSERT_EQ(Get(job.uid()).state(), v1::STARTING) << "the command to hold is not answered";
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING) << "no further report is needed";
}

TEST_F(ActionsTest, AHoldThatRanksRefusedIsTakenBackWithoutACommand) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1);
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  v1::WorkerMessage answer = DoneMessage(LastCommand(worker, v1::Command::HOLD), 0, 0);
  answer.mutable_job_report()->mutable_command_done()->set_error("not while it saves");
  Report(worker, answer);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(Get(job.uid()).goal(), v1::GOAL_RUN);
  EXPECT_EQ(CountCommands(worker, v1::Command::RESUME), 0) << "the ranks never held";
}

}  // namespace
}  // namespace mt::daemon
