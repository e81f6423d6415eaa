// Verbs in a wrong state, kill, delete, update, deadlines, placement by label, events.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class VerbsTest : public CoreTest {
 protected:
  StatusOr<v1::Job> Update(const std::string& uid, v1::UpdateJobRequest request) {
    request.mutable_job()->set_uid(uid);
    v1::Job job;
    const Status status = core_->api().jobs().Update(request, "tester", &job);
    Settle();
    if (!status.ok()) return status;
    return job;
  }
  // A worker with labels.
  Worker LabelledWorker(const std::string& node, int slots, const std::string& zone) {
    Worker worker{.node = node, .uid = base::NewUid(), .link = nullptr};
    labels_ = {{"zone", zone}};
    Connect(&worker, slots);
    labels_.clear();
    return worker;
  }
};

TEST_F(VerbsTest, AWrongStateIsNamedWithTheVerbsThatItAllows) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job running = StartRunning(worker, "running", 1);
  const auto resume = Resume(running.uid());
  EXPECT_EQ(resume.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rpc::ReasonOf(resume.status()), "WRONG_STATE");
  EXPECT_EQ(base::Message(resume.status()),
            "job 'running' is RUNNING: resume is not possible there "
            "(possible: pause, checkpoint, profile, update, cancel, kill)");
  EXPECT_EQ(rpc::ReasonOf(Delete(running.uid()).status()), "WRONG_STATE");
  const v1::Job starting = Submit(TinyJob("starting", 1));
  EXPECT_EQ(rpc::ReasonOf(Checkpoint(starting.uid()).status()), "WRONG_STATE");
  Report(worker, EndedMessage(running, 10, true));
  Gone(worker, running);
  for (const auto mode : {v1::PauseRequest::HOLD, v1::PauseRequest::RELEASE}) {
    const auto pause = Pause(running.uid(), mode);
    EXPECT_EQ(rpc::ReasonOf(pause.status()), "WRONG_STATE");
    EXPECT_NE(base::Message(pause.status()).find("is SUCCEEDED"), std::string::npos);
    EXPECT_NE(base::Message(pause.status()).find("(possible: delete)"), std::string::npos);
  }
  EXPECT_EQ(rpc::ReasonOf(Resume(running.uid()).status()), "WRONG_STATE");
  EXPECT_EQ(rpc::ReasonOf(Kill(running.uid()).status()), "WRONG_STATE");
  EXPECT_EQ(rpc::ReasonOf(Pause(starting.uid(), static_cast<v1::PauseRequest::Mode>(9)).status()),
            "INVALID_REQUEST");
  EXPECT_EQ(core_->keeper().num_refused(), 0) << "verbs are checked before the table is asked";
}

TEST_F(VerbsTest, ARequestIdMeansOneThing) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto pause = Pause(job.uid(), v1::PauseRequest::HOLD, "id");
  ASSERT_TRUE(pause.ok());
  EXPECT_EQ(rpc::ReasonOf(Pause(job.uid(), v1::PauseRequest::RELEASE, "id").status()),
            "REQUEST_ID_REUSED");
  EXPECT_EQ(rpc::ReasonOf(Kill(job.uid(), "id").status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(rpc::ReasonOf(Kill(job.uid(), "").status()), "INVALID_REQUEST");
  EXPECT_EQ(rpc::ReasonOf(Kill(job.uid(), std::string(129, 'x')).status()), "INVALID_REQUEST");
  StartCore();
  EXPECT_EQ(Pause(job.uid(), v1::PauseRequest::HOLD, "id")->name(), pause->name());
}

TEST_F(VerbsTest, KillEndsTheProcessesWithoutAWord) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto cancel = Cancel(job.uid(), true);
  const auto kill = Kill(job.uid());
  ASSERT_TRUE(kill.ok()) << kill.status();
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  EXPECT_TRUE(Op(cancel->name()).done());
  EXPECT_TRUE(Op(kill->name()).done());
  EXPECT_FALSE(Op(kill->name()).has_error());
}

TEST_F(VerbsTest, ADeletedJobIsForgottenButForItsCheckpointDirectory) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job first = StartRunning(worker, "demo", 1);
  Report(worker, EndedMessage(first, 10, true));
  Gone(worker, first);
  const auto deleted = Delete(first.uid(), "d1");
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_TRUE(deleted->done());
  StartCore();
  EXPECT_EQ(Delete(first.uid(), "d1")->name(), deleted->name()) << "once";
  v1::GetJobRequest request;
  request.mutable_job()->set_name("demo");
  v1::Job gone;
  EXPECT_EQ(rpc::ReasonOf(core_->api().jobs().Get(request, &gone)), "UNKNOWN_JOB");
  v1::ListJobsResponse list;
  ASSERT_TRUE(core_->api().jobs().List({}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
  Connect(&worker, 1);
  const v1::Job second = Submit(TinyJob("demo", 1));
  ASSERT_EQ(second.state(), v1::ADMITTED);
  const v1::Assign& assign = worker.link->received.back().assign();
  ASSERT_EQ(assign.ended_job_uids_size(), 1) << "the new job may take its directory over";
  EXPECT_EQ(assign.ended_job_uids(0), first.uid());
}

TEST_F(VerbsTest, UpdateTellsTheRanksAndTheNewestWins) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::UpdateJobRequest request;
  request.mutable_changes()->mutable_training()->set_log_every(7);
  request.mutable_changes()->set_priority(3);
  const auto first = Update(job.uid(), request);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->spec().training().log_every(), 7);
  EXPECT_EQ(LastCommand(worker, v1::Command::UPDATE).spec().training().log_every(), 7);
  EXPECT_EQ(Events("Updated").back().message(), "priority: 0 -> 3, training.log_every: 1 -> 7");
  request.mutable_changes()->mutable_training()->set_log_every(9);
  ASSERT_TRUE(Update(job.uid(), request).ok());
  StartCore();
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_EQ(CountCommands(worker, v1::Command::UPDATE), 1) << "the older is void";
  const v1::Command command = LastCommand(worker, v1::Command::UPDATE);
  EXPECT_EQ(command.spec().training().log_every(), 9);
  Report(worker, DoneMessage(command, 4, 5));
  EXPECT_EQ(Events("UpdateActed").back().step(), 5);
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_EQ(CountCommands(worker, v1::Command::UPDATE), 0);
  // What no rank needs to know is told to none.
  v1::UpdateJobRequest label;
  (*label.mutable_changes()->mutable_labels())["team"] = std::string("blue");
  ASSERT_TRUE(Update(job.uid(), label).ok());
  EXPECT_EQ(CountCommands(worker, v1::Command::UPDATE), 0);
}

TEST_F(VerbsTest, UpdateIsComparedAndRefusedFieldByField) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::UpdateJobRequest request;
  request.set_etag(job.etag());
  request.mutable_changes()->set_priority(1);
  const auto changed = Update(job.uid(), request);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_NE(changed->etag(), job.etag());
  EXPECT_EQ(changed->etag(), Get(job.uid()).etag());
  const auto stale = Update(job.uid(), request);
  EXPECT_EQ(stale.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(rpc::ReasonOf(stale.status()), "ETAG_MISMATCH");
  v1::UpdateJobRequest bad;
  bad.mutable_changes()->mutable_training()->set_train_iters(99);
  bad.mutable_changes()->mutable_optimizer()->set_lr(1);
  const auto refused = Update(job.uid(), bad);
  EXPECT_EQ(rpc::ReasonOf(refused.status()), "INVALID_SPEC");
  EXPECT_NE(base::Message(refused.status())
                .find("training.train_iters: changing the run length is not supported yet"),
            std::string::npos);
  EXPECT_NE(base::Message(refused.status()).find("optimizer.lr: cannot change after the start"),
            std::string::npos);
  ASSERT_TRUE(Kill(job.uid()).ok());
  Gone(worker, job);
  EXPECT_EQ(rpc::ReasonOf(Update(job.uid(), v1::UpdateJobRequest()).status()), "WRONG_STATE");
}

TEST_F(VerbsTest, TwoUpdatesInOneRoundCannotBothCompareEqual) {
  const v1::Job job = Submit(TinyJob("demo", 1));
  v1::UpdateJobRequest request;
  request.mutable_job()->set_uid(job.uid());
  request.set_etag(job.etag());
  request.mutable_changes()->set_priority(1);
  v1::Job out;
  EXPECT_TRUE(core_->api().jobs().Update(request, "a", &out).ok());
  request.mutable_changes()->set_priority(2);
  EXPECT_EQ(core_->api().jobs().Update(request, "b", &out).code(), absl::StatusCode::kAborted);
}

TEST_F(VerbsTest, ADeadlineSavesThenFails) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1, "resilience: {deadline: 60s}\n");
  EXPECT_EQ(job.deadline_us(), job.created_us() + 60'000'000);
  const v1::Job queued = Submit(TinyJob("queued", 1, "resilience: {deadline: 30s}\n"));
  PassBeating(seconds(32), {&worker});
  EXPECT_EQ(Get(queued.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(queued.uid()).cause(), v1::DEADLINE);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  PassBeating(seconds(30), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITH_SAVE), 1);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  Report(worker, EndedMessage(job, 9, false));
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(job.uid()).cause(), v1::DEADLINE);
  EXPECT_EQ(Get(job.uid()).message(), "its deadline of 60 s is over");
}

TEST_F(VerbsTest, ADeadlineCountsOverRestartsAndMayBeMoved) {
  const v1::Job job = Submit(TinyJob("demo", 1, "resilience: {deadline: 60s}\n"));
  Pass(seconds(40));
  StartCore();
  v1::UpdateJobRequest later;
  later.mutable_changes()->mutable_resilience()->set_deadline(90'000);
  ASSERT_TRUE(Update(job.uid(), later).ok());
  Pass(seconds(45));
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  Pass(seconds(6));
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  const v1::Job other = Submit(TinyJob("other", 1, "resilience: {deadline: 60s}\n"));
  v1::UpdateJobRequest never;
  never.add_clear("resilience.deadline");
  ASSERT_TRUE(Update(other.uid(), never).ok());
  Pass(seconds(600));
  EXPECT_EQ(Get(other.uid()).state(), v1::QUEUED);
}

TEST_F(VerbsTest, AnExitConditionIsSuccess) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::WorkerMessage ended = EndedMessage(job, 5, false);
  ended.mutable_job_report()->mutable_training_ended()->set_exit_condition(
      "training.exit_at_iter 5");
  Report(worker, ended);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::SUCCEEDED);
  EXPECT_EQ(Get(job.uid()).message(), "training.exit_at_iter 5 was reached at step 5");
}

TEST_F(VerbsTest, TheEndSaysHowManyStepsWereSkipped) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::WorkerMessage steps = StepsMessage(job, 1, 5);
  steps.mutable_steps()->mutable_steps(4)->set_skipped_steps(3);
  Report(worker, steps);
  Report(worker, EndedMessage(job, 5, true));
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::SUCCEEDED);
  EXPECT_EQ(Get(job.uid()).message(), "trained to step 5; steps that were skipped: 3");
}

TEST_F(VerbsTest, LabelsAndWholeNodes) {
  Worker a = LabelledWorker("a", 2, "east");
  Worker b = LabelledWorker("b", 2, "west");
  v1::JobSpec in_the_west = TinyJob("west", 1);
  in_the_west.mutable_placement()->mutable_node_selector()->insert({"zone", "west"});
  const v1::Job west = Submit(in_the_west);
  EXPECT_EQ(CountAssigns(b), 1);
  v1::JobSpec alone = TinyJob("alone", 1);
  alone.mutable_placement()->set_exclusive(true);
  const v1::Job exclusive = Submit(alone);
  EXPECT_EQ(CountAssigns(a), 1) << "the node that nobody else uses";
  v1::JobSpec more = TinyJob("more", 2);
  const v1::Job third = Submit(more);
  EXPECT_EQ(third.state(), v1::QUEUED) << "an idle slot beside an exclusive job is no offer";
  EXPECT_EQ(third.message(), "needs 2 CPU slots, 1 of 4 are free");
  v1::JobSpec nowhere = TinyJob("nowhere", 1);
  nowhere.mutable_placement()->mutable_node_selector()->insert({"zone", "north"});
  EXPECT_EQ(Submit(nowhere).message(),
            "needs 1 CPU slot on nodes with zone=north, no connected node has these labels");
  ASSERT_TRUE(Kill(exclusive.uid()).ok());
  Gone(a, exclusive);
  EXPECT_EQ(Get(third.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Get(west.uid()).state(), v1::ADMITTED);
}

TEST_F(VerbsTest, EventsComeOnceInOrderFromThePastAndLive) {
  for (int i = 0; i < 30; ++i) Submit(TinyJob("job" + std::to_string(i), 1));
  v1::WatchEventsRequest request;
  request.set_since_seq(5);
  request.set_follow(true);
  const auto stream = core_->api().streams().WatchEvents(request);
  ASSERT_TRUE(stream.ok());
  Submit(TinyJob("late", 1));
  std::vector<int64_t> seqs;
  int markers = 0;
  for (auto taken = stream->subscription->Take(nullptr); taken.item.has_value();
       taken = stream->subscription->Take(nullptr)) {
    if (taken.item->event == nullptr) {
      ++markers;
      EXPECT_EQ(taken.item->oldest_seq, 1);
      continue;
    }
    seqs.push_back(taken.item->event->seq());
  }
  EXPECT_EQ(markers, 1);
  ASSERT_FALSE(seqs.empty());
  EXPECT_EQ(seqs.front(), 5);
  for (size_t i = 1; i < seqs.size(); ++i) EXPECT_EQ(seqs[i], seqs[i - 1] + 1);
  EXPECT_EQ(seqs.back(), Events().back().seq());
  core_->events().Unwatch(stream->subscription.get());
  EXPECT_EQ(core_->events().num_readers(), 0u);
  request.set_limit(-1);
  EXPECT_EQ(rpc::ReasonOf(core_->api().streams().WatchEvents(request).status()), "INVALID_REQUEST");
}

TEST_F(VerbsTest, TenThousandEventsOfBacklogAndAReaderThatDoesNotRead) {
  const v1::Job job = Submit(TinyJob("demo", 1));
  for (int i = 0; i < 10'000; ++i)
    core_->ledger().AddEvent({.type = "Noise", .message = "n", .job_uid = job.uid()});
  core_->ledger().MarkJob(*core_->ledger().FindJob(job.uid()), Change::kState);
  Settle();
  v1::WatchEventsRequest request;
  request.set_since_seq(1);
  request.set_limit(20'000);
  request.set_follow(true);
  const auto stream = core_->api().streams().WatchEvents(request);
  ASSERT_TRUE(stream.ok());
  EXPECT_GT(stream->subscription->num_queued(), 10'000u);
  const size_t past = stream->subscription->num_queued();
  for (int i = 0; i < 5'000; ++i)
    core_->ledger().AddEvent({.type = "Noise", .message = "n", .job_uid = job.uid()});
  core_->ledger().MarkJob(*core_->ledger().FindJob(job.uid()), Change::kState);
  Settle();
  EXPECT_EQ(stream->subscription->num_queued(), past + 1'024) << "bounded";
  EXPECT_EQ(stream->subscription->Take(nullptr).dropped, 5'000 - 1'024);
  // The default is the newest hundred; a limit keeps the newest.
  EXPECT_EQ(Events("Submitted").size(), 1u);
  const auto newest = core_->api().streams().WatchEvents(v1::WatchEventsRequest());
  EXPECT_EQ((*newest).subscription->num_queued(), 101u);
}

}  // namespace
}  // namespace mt::daemon
