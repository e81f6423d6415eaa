// Jobs of kinds generate and eval: placed and ended as any job, without a directory, without what
// steps alone have; and where what they write is read.
#include <fmt/ranges.h>

#include "tests/daemon/keeper/orphans_fixture.h"

namespace mt::daemon {
namespace {

constexpr char kWrote[] = "step-00000020-e0001 of demo: 64 tokens in 1.5 s after 0.2 s of loading";

v1::JobSpec ReaderJob(const std::string& name) {
  v1::JobSpec spec;
  const auto faults = spec::ParseJob("name: " + name + R"(
kind: generate
read: {checkpoint: default/demo}
generate: {prompts: ["Once"], temperature: 0.5}
placement: {device: cpu}
)",
                                     {}, &spec);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return spec;
}

class ReadersTest : public CoreTest {
 protected:
  v1::Job Start(Worker& worker, const std::string& name) {
    v1::Job job = Submit(ReaderJob(name));
    Accept(worker, job);
    Report(worker, RankMessage(job, 0, v1::LOADING));
    EXPECT_EQ(Get(job.uid()).state(), v1::STARTING);
    for (const v1::RankState state : {v1::READY, v1::TRAINING})
      Report(worker, RankMessage(job, 0, state));
    job = Get(job.uid());
    EXPECT_EQ(job.state(), v1::RUNNING) << job.message();
    return job;
  }
  // The rank's process ends well.
  void End(Worker& worker, const v1::Job& job) {
    v1::WorkerMessage done = RankMessage(job, 0, v1::DONE);
    done.mutable_rank_report()->mutable_status()->set_exited(true);
    Report(worker, done);
    Gone(worker, job);
  }
  static v1::Assign AssignOf(const Worker& worker) {
    v1::Assign assign;
    for (const v1::CoordinatorMessage& message : worker.link->received)
      if (message.has_assign()) assign = message.assign();
    return assign;
  }
};

TEST_F(ReadersTest, RunsToItsEndWithoutADirectory) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Start(worker, "look");
  const v1::Assign assign = AssignOf(worker);
  EXPECT_EQ(assign.spec().checkpoint().directory(), "none");
  EXPECT_EQ(assign.spec().placement().threads_per_rank(), assign.threads_per_rank());
  EXPECT_FALSE(assign.spec().has_training());
  EXPECT_EQ(assign.world_size(), 1);
  EXPECT_FALSE(assign.has_base());
  EXPECT_FALSE(assign.hold());
  EXPECT_EQ(assign.restart(), "");
  EXPECT_EQ(assign.ended_job_uids_size(), 0);
  v1::WorkerMessage ended = EndedMessage(job, 0, /*completed=*/true);
  ended.mutable_job_report()->mutable_training_ended()->set_message(kWrote);
  Report(worker, ended);
  End(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::SUCCEEDED);
  EXPECT_EQ(Get(job.uid()).message(), kWrote);
}

TEST_F(ReadersTest, TakesItsTurnAmongOtherJobs) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job trains = StartRunning(worker, "demo", 1);
  const v1::Job waits = Submit(ReaderJob("look"));
  EXPECT_EQ(waits.state(), v1::QUEUED);
  EXPECT_NE(waits.message(), "");
  Gone(worker, trains);
  EXPECT_EQ(Get(waits.uid()).state(), v1::ADMITTED);
}

TEST_F(ReadersTest, WhatStepsAloneHaveIsRefusedByKind) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Start(worker, "look");
  v1::ProfileRequest profile;
  profile.set_steps(3);
  for (const auto& refused :
       {Pause(job.uid(), v1::PauseRequest::HOLD), Pause(job.uid(), v1::PauseRequest::RELEASE),
        Resume(job.uid()), Checkpoint(job.uid()), Do(&VerbsApi::Profile, profile, job.uid())}) {
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(rpc::ReasonOf(refused.status()), "WRONG_KIND");
    EXPECT_NE(base::Message(refused.status()).find("job 'look' is of kind generate: "),
              std::string::npos)
        << refused.status();
  }
  // Waiting, too.
  const v1::Job waits = Submit(ReaderJob("next"));
  EXPECT_EQ(rpc::ReasonOf(Pause(waits.uid(), v1::PauseRequest::HOLD).status()), "WRONG_KIND");
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(CountCommands(worker, v1::Command::HOLD), 0);
}

TEST_F(ReadersTest, ItsPlaceInTheQueueChangesAndNoRankIsTold) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Start(worker, "look");
  v1::UpdateJobRequest request;
  request.mutable_job()->set_uid(job.uid());
  request.mutable_changes()->set_priority(7);
  v1::Job changed;
  ASSERT_TRUE(core_->api().jobs().Update(request, "tester", &changed).ok());
  EXPECT_EQ(changed.spec().priority(), 7);
  request.mutable_changes()->mutable_training()->set_log_every(2);
  const Status refused = core_->api().jobs().Update(request, "tester", &changed);
  EXPECT_EQ(rpc::ReasonOf(refused), "INVALID_SPEC") << refused;
  Settle();
  EXPECT_EQ(CountCommands(worker, v1::Command::UPDATE), 0);
}

TEST_F(ReadersTest, ACancelStopsItThroughItsRank) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Start(worker, "look");
  ASSERT_TRUE(Cancel(job.uid(), /*save=*/true).ok());
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITH_SAVE), 0) << "it saves nothing";
  ASSERT_EQ(CountCommands(worker, v1::Command::STOP_WITHOUT_SAVE), 1);
  Report(worker, DoneMessage(LastCommand(worker, v1::Command::STOP_WITHOUT_SAVE), 0, 0));
  Report(worker, EndedMessage(job, 0, /*completed=*/false));
  End(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED) << Get(job.uid()).message();
}

TEST_F(ReadersTest, AFaultEndsIt) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Start(worker, "look");
  v1::WorkerMessage died = RankMessage(job, 0, v1::FAULTED);
  v1::RankReport* report = died.mutable_rank_report();
  report->mutable_status()->set_exited(true);
  report->mutable_status()->set_exit_code(64);
  report->mutable_status()->set_message("checkpoint was removed while it was read");
  report->set_cause(v1::USER_ERROR);
  Report(worker, died);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(job.uid()).cause(), v1::USER_ERROR);
}

// From the node of its rank, from any byte on.
TEST_F(ReadersTest, WhatItWritesIsAskedOfItsNode) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = Start(worker, "look");
  v1::ReadOutputRequest request;
  request.mutable_job()->set_uid(job.uid());
  request.set_offset(100);
  request.set_follow(true);
  const auto stream = core_->api().streams().ReadOutput(request);
  ASSERT_TRUE(stream.ok()) << stream.status();
  Settle();
  ASSERT_TRUE(worker.link->received.back().has_log_request());
  const v1::LogRequest& asked = worker.link->received.back().log_request();
  EXPECT_TRUE(asked.output());
  EXPECT_TRUE(asked.follow());
  EXPECT_EQ(asked.offset(), 100);
  EXPECT_EQ(asked.job_uid(), job.uid());
  EXPECT_EQ(asked.job_name(), "look");
  request.set_offset(-1);
  EXPECT_EQ(rpc::ReasonOf(core_->api().streams().ReadOutput(request).status()), "INVALID_REQUEST");
  request.set_offset(0);
  request.mutable_job()->set_uid(StartRunning(worker, "demo", 1).uid());
  EXPECT_EQ(rpc::ReasonOf(core_->api().streams().ReadOutput(request).status()), "WRONG_KIND");
  request.mutable_job()->set_uid(Submit(ReaderJob("waits")).uid());
  const Status waits = core_->api().streams().ReadOutput(request).status();
  EXPECT_EQ(rpc::ReasonOf(waits), "WRONG_STATE");
  EXPECT_NE(base::Message(waits).find("and has written nothing: "), std::string::npos) << waits;
}

// One that has lost its ranks may have written.
TEST_F(ReadersTest, WhereItsTextLiesIsNotKnownWithoutItsRanks) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Start(worker, "look");
  core_->ledger().EraseAllocation({job.uid(), job.epoch(), "n1"});
  PassBeating(std::chrono::seconds(60), {&worker});
  const v1::Job lost = Get(job.uid());
  ASSERT_TRUE(lost.ranks().empty()) << lost.message();
  v1::ReadOutputRequest request;
  request.mutable_job()->set_uid(job.uid());
  const Status refused = core_->api().streams().ReadOutput(request).status();
  EXPECT_EQ(rpc::ReasonOf(refused), "WRONG_STATE");
  EXPECT_NE(base::Message(refused).find("nobody knows on which node its text lies"),
            std::string::npos)
      << refused;
}

class PinsTest : public ReadersTest {
 protected:
  v1::Job SubmitReaderOf(const std::string& name, const std::string& path, int64_t step) {
    v1::JobSpec spec = ReaderJob(name);
    spec.mutable_read()->set_checkpoint(path);
    if (step >= 0) spec.mutable_read()->set_step(step);
    const v1::Job job = Submit(spec);
    Settle();
    return job;
  }
  // What rank 0 was told last, as "100 200"; "never" where it was not.
  static std::string Told(const Worker& worker) {
    if (CountCommands(worker, v1::Command::KEEP_STEPS) == 0) return "never";
    return fmt::format("{}",
                       fmt::join(LastCommand(worker, v1::Command::KEEP_STEPS).kept_steps(), " "));
  }
};

TEST_F(PinsTest, StepsThatAreNamedAreKeptWhileTheirReadersLive) {
  Worker trains = NewWorker("n1", 1);
  const v1::Job demo = StartRunning(trains, "demo", 1);
  Worker reads = NewWorker("n2", 1);
  EXPECT_EQ(Told(trains), "never");
  const v1::Job one = SubmitReaderOf("one", "default/demo", 200);
  EXPECT_EQ(Told(trains), "200");
  // It waits for its slot; a folder names its step, too. Others mean nothing here.
  const v1::Job two = SubmitReaderOf("two", "default/demo/step-00000100-e0001/", -1);
  SubmitReaderOf("newest", "default/demo", -1);
  SubmitReaderOf("elsewhere", "default/other", 7);
  EXPECT_EQ(Told(trains), "100 200");
  const int told = CountCommands(trains, v1::Command::KEEP_STEPS);
  Report(trains, DoneMessage(LastCommand(trains, v1::Command::KEEP_STEPS), 0, 0));
  Settle();
  EXPECT_EQ(CountCommands(trains, v1::Command::KEEP_STEPS), told) << "once";
  ASSERT_TRUE(Cancel(two.uid(), false).ok());
  Settle();
  EXPECT_EQ(Told(trains), "200");
  Accept(reads, one);
  Report(reads, RankMessage(one, 0, v1::TRAINING));
  v1::WorkerMessage ended = EndedMessage(one, 0, /*completed=*/true);
  Report(reads, ended);
  End(reads, one);
  Settle();
  EXPECT_EQ(Get(one.uid()).state(), v1::SUCCEEDED);
  EXPECT_EQ(Told(trains), "") << "none is kept any more";
  EXPECT_EQ(Get(demo.uid()).state(), v1::RUNNING);
}

// As the roots take them (spec::ResolveBelow).
TEST_F(PinsTest, APathMeansTheSameHoweverItIsSpelled) {
  Worker trains = NewWorker("n1", 1);
  StartRunning(trains, "demo", 1);
  Worker other = NewWorker("n2", 1);
  StartRunning(other, "there", 1, "checkpoint: {directory: ./team//there/}\n");
  int64_t step = 100;
  std::string expected;
  for (const char* path : {"default/demo/", "./default/demo", "default//demo", "default/./demo"}) {
    SubmitReaderOf(fmt::format("look{}", step), path, step);
    expected += (expected.empty() ? "" : " ") + std::to_string(step++);
    EXPECT_EQ(Told(trains), expected) << path;
  }
  SubmitReaderOf("folder", "./default//demo/step-00000200-e0001/", -1);
  EXPECT_EQ(Told(trains), expected + " 200");
  SubmitReaderOf("there-too", "team/there", 7);
  EXPECT_EQ(Told(other), "7");
}

TEST_F(PinsTest, AJobThatStartsLaterIsToldAndOnceForItsEpoch) {
  Worker reads = NewWorker("n1", 1);
  SubmitReaderOf("one", "default/demo", 200);
  Worker trains = NewWorker("n2", 1);
  const v1::Job demo = StartRunning(trains, "demo", 1);
  Settle();
  EXPECT_EQ(Told(trains), "200");
  Report(trains, DoneMessage(LastCommand(trains, v1::Command::KEEP_STEPS), 0, 0));
  StartCore();
  Connect(&trains, 1, {Held(demo, v1::TRAINING)});
  Settle();
  EXPECT_EQ(Told(trains), "never") << "it has answered";
}

// A later epoch has ranks of its own, which keep nothing until they are told.
TEST_F(PinsTest, AJobThatWasReleasedIsToldAgain) {
  Worker trains = NewWorker("n1", 1);
  const v1::Job demo = StartRunning(trains, "demo", 1);
  SubmitReaderOf("one", "default/demo", 200);
  Report(trains, DoneMessage(LastCommand(trains, v1::Command::KEEP_STEPS), 0, 0));
  ASSERT_TRUE(Pause(demo.uid(), v1::PauseRequest::RELEASE).ok());
  Gone(trains, demo);
  ASSERT_EQ(Get(demo.uid()).state(), v1::PAUSED_RELEASED);
  Worker again = NewWorker("n2", 1);  // the reader has the slot of n1
  ASSERT_TRUE(Resume(demo.uid()).ok());
  ASSERT_EQ(AssignOf(again).job_uid(), demo.uid()) << Get(demo.uid()).message();
  const v1::Job later = Get(demo.uid());
  Accept(again, later);
  Report(again, RankMessage(later, 0, v1::TRAINING));
  Settle();
  EXPECT_EQ(Told(again), "200");
}

// A save is under way, and what is behind it is pruned then.
TEST_F(PinsTest, AJobThatEndsIsToldToo) {
  Worker trains = NewWorker("n1", 1);
  const v1::Job demo = StartRunning(trains, "demo", 1);
  Report(trains, RankMessage(demo, 0, v1::TRAINING));
  ASSERT_TRUE(Cancel(demo.uid(), /*save=*/true).ok());
  ASSERT_EQ(CountCommands(trains, v1::Command::STOP_WITH_SAVE), 1);
  SubmitReaderOf("one", "default/demo", 200);
  EXPECT_EQ(Told(trains), "200");
}

// What another store has told them is not known, which is not the same as nothing.
TEST_F(PinsTest, RanksThatAreTakenOverAreToldAnew) {
  Worker trains = NewWorker("n1", 1);
  const v1::Job demo = StartRunning(trains, "demo", 1);
  core_->sessions().OnClosed(trains.session);
  Worker again{.node = "n1", .uid = base::NewUid(), .link = nullptr};
  Connect(&again, 1, {HeldElsewhere(demo.uid(), FirstTerm(5), 1, {0})});
  ASSERT_EQ(Get(demo.uid()).epoch(), FirstTerm(5));
  Settle();
  ASSERT_EQ(CountCommands(again, v1::Command::KEEP_STEPS), 1);
  EXPECT_EQ(Told(again), "") << "readers of then may have ended since";
  Report(again, DoneMessage(LastCommand(again, v1::Command::KEEP_STEPS), 0, 0));
  Settle();
  EXPECT_EQ(CountCommands(again, v1::Command::KEEP_STEPS), 1) << "once";
  SubmitReaderOf("one", "default/demo", 200);
  EXPECT_EQ(Told(again), "200");
}

TEST_F(PinsTest, RanksOfARestoredStoreAreToldAnew) {
  Worker trains = NewWorker("n1", 1);
  const v1::Job demo = StartRunning(trains, "demo", 1);
  SubmitReaderOf("one", "default/demo", 200);
  Report(trains, DoneMessage(LastCommand(trains, v1::Command::KEEP_STEPS), 0, 0));
  const std::string first = LastCommand(trains, v1::Command::KEEP_STEPS).command_id();
  ASSERT_TRUE(core_->api().admin().DeclareRestore(v1::DeclareRestoreRequest(), "tester").ok());
  Settle();
  Connect(&trains, 1, {Held(demo, v1::TRAINING)});
  Settle();
  EXPECT_EQ(Told(trains), "200") << "others may have been told to it since the backup";
  const v1::Command again = LastCommand(trains, v1::Command::KEEP_STEPS);
  EXPECT_NE(again.command_id(), first);
  Report(trains, DoneMessage(again, 0, 0));
  const int told = CountCommands(trains, v1::Command::KEEP_STEPS);
  Settle();
  EXPECT_EQ(CountCommands(trains, v1::Command::KEEP_STEPS), told) << "once";
}

// An agent of an earlier version does not know the command.
TEST_F(PinsTest, ARefusalIsShownToWhoeverReads) {
  Worker trains = NewWorker("n1", 1);
  StartRunning(trains, "demo", 1);
  const v1::Job one = SubmitReaderOf("one", "default/demo/", 200);
  SubmitReaderOf("elsewhere", "default/other", 200);
  v1::WorkerMessage ack;
  ack.mutable_command_ack()->set_command_id(
      LastCommand(trains, v1::Command::KEEP_STEPS).command_id());
  ack.mutable_command_ack()->set_message("unknown verb");
  Report(trains, ack);
  const auto events = Events("CheckpointNotKept");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].job_uid(), one.uid());
  EXPECT_EQ(events[0].step(), 200);
  EXPECT_EQ(events[0].message(),
            "job 'demo' may prune step 200 of default/demo before it is read: it did not take the "
            "command to keep it: node n1: unknown verb");
  Settle();
  EXPECT_EQ(CountCommands(trains, v1::Command::KEEP_STEPS), 1) << "it would refuse it again";
}

// Whoever updates the job that trains has not missed anything.
TEST_F(PinsTest, AReaderChangesNoEtagOfTheJobThatTrains) {
  Worker trains = NewWorker("n1", 1);
  const v1::Job demo = StartRunning(trains, "demo", 1);
  const std::string etag = Get(demo.uid()).etag();
  SubmitReaderOf("one", "default/demo", 200);
  EXPECT_EQ(Told(trains), "200");
  Report(trains, DoneMessage(LastCommand(trains, v1::Command::KEEP_STEPS), 0, 0));
  EXPECT_EQ(Get(demo.uid()).etag(), etag);
  StartCore();
  EXPECT_EQ(core_->ledger().FindJob(demo.uid())->kept_steps_size(), 1) << "it is on disk";
}

TEST_F(PinsTest, AReaderOfALostNodeKeepsNothing) {
  Worker reads = NewWorker("n1", 1);
  const v1::Job one = SubmitReaderOf("one", "default/demo", 200);
  Accept(reads, one);
  Report(reads, RankMessage(one, 0, v1::TRAINING));
  Worker trains = NewWorker("n2", 1);
  StartRunning(trains, "demo", 1);
  Settle();
  EXPECT_EQ(Told(trains), "200");
  PassBeating(std::chrono::seconds(45), {&trains});
  EXPECT_EQ(Told(trains), "");
  EXPECT_EQ(Get(one.uid()).state(), v1::RUNNING) << "its node may come back";
}

}  // namespace
}  // namespace mt::daemon
