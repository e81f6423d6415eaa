// Verbs in the states that jobs pass through quickly, or in which they wait: what becomes of the
// job, of its ranks and of what was asked before.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

class RowsTest : public CoreTest {
 protected:
  // Cancels, or kills.
  StatusOr<v1::Operation> End(const std::string& uid, bool kill) {
    return kill ? Kill(uid) : Cancel(uid, /*save=*/false);
  }
};

TEST_F(RowsTest, AWaitingJobEndsAtOnce) {
  for (const bool kill : {false, true}) {
    const v1::Job queued = Submit(TinyJob("queued", 1));
    ASSERT_TRUE(Pause(queued.uid(), v1::PauseRequest::HOLD).ok());
    ASSERT_EQ(Get(queued.uid()).state(), v1::PAUSED_RELEASED);
    ASSERT_TRUE(Resume(queued.uid()).ok());
    EXPECT_EQ(Get(queued.uid()).state(), v1::QUEUED);
    EXPECT_TRUE(End(queued.uid(), kill)->done());
    EXPECT_EQ(Get(queued.uid()).state(), v1::CANCELLED);
    EXPECT_EQ(Get(queued.uid()).ranks_size(), 0);
    const v1::Job released = Submit(TinyJob("released", 1));
    ASSERT_TRUE(Pause(released.uid(), v1::PauseRequest::RELEASE)->done());
    ASSERT_EQ(Get(released.uid()).state(), v1::PAUSED_RELEASED);
    EXPECT_TRUE(End(released.uid(), kill)->done());
    EXPECT_EQ(Get(released.uid()).state(), v1::CANCELLED);
  }
}

TEST_F(RowsTest, AReleasedJobMeetsItsDeadline) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, "resilience: {deadline: 60s}\n");
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  Report(worker, EndedMessage(job, 9, false));
  Gone(worker, job);
  ASSERT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  PassBeating(seconds(50), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  PassBeating(seconds(12), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(job.uid()).cause(), v1::DEADLINE);
}

TEST_F(RowsTest, AnAdmittedJobIsResumedBeforeItWasHeld) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD);
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_TRUE(Op(pause->name()).done());
  EXPECT_EQ(Op(pause->name()).error().reason(), "SUPERSEDED");
  EXPECT_NE(Op(pause->name()).error().message().find("resume"), std::string::npos)
      << Op(pause->name()).error().message();
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, v1::READY));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(CountCommands(worker, v1::Command::HOLD), 0);
}

TEST_F(RowsTest, AnAdmittedJobIsReleasedAndPlacedAgain) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  ASSERT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(pause.ok()) << pause.status();
  // The agent has the order by then, and takes it before it hears more.
  Accept(worker, job);
  EXPECT_GE(CountCommands(worker, v1::Command::KILL), 1) << "nothing of it is worth a save";
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_TRUE(Op(pause->name()).done());
  EXPECT_FALSE(Op(pause->name()).has_error());
  ASSERT_TRUE(Resume(job.uid()).ok());
  const v1::Job again = Get(job.uid());
  EXPECT_EQ(again.state(), v1::ADMITTED);
  EXPECT_EQ(control::CountOfEpoch(again.epoch()), 2);
  Accept(worker, again);
  Report(worker, RankMessage(again, 0, v1::READY));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(RowsTest, AnAdmittedJobIsCancelled) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  const auto cancel = Cancel(job.uid(), /*save=*/false);
  ASSERT_TRUE(cancel.ok()) << cancel.status();
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_FALSE(Op(cancel->name()).done()) << "its agent has not been heard";
  Accept(worker, job);
  EXPECT_GE(CountCommands(worker, v1::Command::KILL), 1);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  EXPECT_TRUE(Op(cancel->name()).done());
}

TEST_F(RowsTest, AReleasingJobIsKilled) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_EQ(Get(job.uid()).state(), v1::RELEASING);
  const auto kill = Kill(job.uid());
  ASSERT_TRUE(kill.ok()) << kill.status();
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  EXPECT_EQ(Get(job.uid()).ranks_size(), 1) << "a final job still shows the ranks that it had";
  EXPECT_TRUE(Op(kill->name()).done());
  EXPECT_TRUE(Op(pause->name()).has_error()) << "it was not released";
}

}  // namespace
}  // namespace mt::daemon
