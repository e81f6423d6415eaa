// Profiles of running jobs: the way to the ranks and back, what is refused, and what becomes of one
// whose job ends.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

class ProfileTest : public CoreTest {
 protected:
  StatusOr<v1::Operation> Profile(const std::string& uid, int steps) {
    v1::ProfileRequest request;
    request.set_steps(steps);
    return Do(&VerbsApi::Profile, request, uid);
  }
  // Rank 0 has left a trace of these steps.
  void Answer(Worker& worker, int64_t first, int64_t last, const std::string& note = "") {
    v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::PROFILE), 5, last);
    v1::StepProfile* profile = done.mutable_job_report()->mutable_command_done()->mutable_profile();
    profile->set_trace("trace-x.pb");
    profile->set_first_step(first);
    profile->set_last_step(last);
    profile->set_bytes(99);
    profile->set_note(note);
    Report(worker, done);
  }
};

TEST_F(ProfileTest, GoesToTheRanksAndComesBackAsAnOperation) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto asked = Profile(job.uid(), 3);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->verb(), "profile");
  EXPECT_FALSE(asked->done());
  EXPECT_EQ(LastCommand(worker, v1::Command::PROFILE).profile_steps(), 3);
  Answer(worker, 7, 9);
  const v1::Operation done = Op(asked->name());
  EXPECT_TRUE(done.done());
  EXPECT_EQ(done.result(), "traced steps 7 to 9");
  EXPECT_EQ(done.profile().trace(), "trace-x.pb");
  EXPECT_EQ(done.profile().bytes(), 99);
  EXPECT_EQ(done.word_step(), 5);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING) << "nothing of the job has changed";
  // Another one, of a run that ended before its last step.
  const auto cut = Profile(job.uid(), 5);
  ASSERT_TRUE(cut.ok()) << cut.status();
  Answer(worker, 20, 21, "2 of 5 steps: the run ended after step 21");
  EXPECT_EQ(Op(cut->name()).result(),
            "traced steps 20 to 21 (2 of 5 steps: the run ended after step 21)");
}

TEST_F(ProfileTest, ItIsSentAgainAfterARestart) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto asked = Profile(job.uid(), 4);
  ASSERT_TRUE(asked.ok()) << asked.status();
  StartCore();
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_EQ(LastCommand(worker, v1::Command::PROFILE).profile_steps(), 4);
  Answer(worker, 7, 10);
  EXPECT_EQ(Op(asked->name()).profile().last_step(), 10);
}

TEST_F(ProfileTest, StepsThatAreNoneOrTooManyAreRefused) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  for (const int steps : {0, -1, 21}) {
    const auto asked = Profile(job.uid(), steps);
    EXPECT_EQ(asked.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rpc::ReasonOf(asked.status()), "INVALID_REQUEST");
    EXPECT_EQ(base::Message(asked.status()),
              fmt::format("a profile is of 1 to 20 steps, not of {}", steps));
  }
  EXPECT_EQ(CountCommands(worker, v1::Command::PROFILE), 0);
}

TEST_F(ProfileTest, OnlyARunningJobIsProfiledAndOnceAtATime) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job queued = Submit(TinyJob("waits", 2));
  const auto waits = Profile(queued.uid(), 3);
  EXPECT_EQ(rpc::ReasonOf(waits.status()), "WRONG_STATE");
  EXPECT_NE(base::Message(waits.status()).find("no step runs"), std::string::npos);
  const v1::Job job = StartRunning(worker, "demo", 1);
  ASSERT_TRUE(Profile(job.uid(), 3).ok());
  const auto second = Profile(job.uid(), 3);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(base::Message(second.status()).find("is under way"), std::string::npos);
  EXPECT_EQ(CountCommands(worker, v1::Command::PROFILE), 1);
}

TEST_F(ProfileTest, WhatTheRanksRefuseIsTold) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto asked = Profile(job.uid(), 3);
  ASSERT_TRUE(asked.ok()) << asked.status();
  v1::WorkerMessage done = DoneMessage(LastCommand(worker, v1::Command::PROFILE), 5, 6);
  done.mutable_job_report()->mutable_command_done()->set_error("step 6 was the run's last one");
  Report(worker, done);
  const v1::Operation failed = Op(asked->name());
  EXPECT_EQ(failed.error().message(), "nothing was traced: step 6 was the run's last one");
  EXPECT_TRUE(Profile(job.uid(), 3).ok()) << "the way is free again";
}

TEST_F(ProfileTest, RanksThatEndOweIt) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto asked = Profile(job.uid(), 3);
  ASSERT_TRUE(asked.ok()) << asked.status();
  v1::WorkerMessage died = RankMessage(job, 0, v1::FAULTED);
  died.mutable_rank_report()->mutable_status()->set_exited(true);
  died.mutable_rank_report()->mutable_status()->set_exit_signal(9);
  Report(worker, died);
  Gone(worker, job);
  EXPECT_EQ(Op(asked->name()).error().reason(), "JOB_ENDED");
  // Of a job that goes on later, too.
  const v1::Job released = StartRunning(worker, "other", 1);
  const auto owed = Profile(released.uid(), 3);
  ASSERT_TRUE(owed.ok()) << owed.status();
  v1::PauseRequest pause;
  pause.set_mode(v1::PauseRequest::RELEASE);
  ASSERT_TRUE(Do(&VerbsApi::Pause, pause, released.uid()).ok());
  EXPECT_FALSE(Op(owed->name()).done());
  Gone(worker, released);
  EXPECT_EQ(Get(released.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_EQ(Op(owed->name()).error().reason(), "JOB_ENDED");
  EXPECT_NE(Op(owed->name()).error().message().find("before they had traced the steps"),
            std::string::npos)
      << Op(owed->name()).error().message();
}

}  // namespace
}  // namespace mt::daemon
