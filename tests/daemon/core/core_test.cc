// What the coordinator does with jobs and with what workers report, without a socket.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(CoreTest, AJobFromQueueToSuccess) {
  Worker worker = NewWorker("n1", 2);
  v1::Job job = Submit(TinyJob("demo", 2));
  EXPECT_EQ(job.state(), v1::ADMITTED);
  EXPECT_EQ(control::CountOfEpoch(job.epoch()), 1);
  ASSERT_EQ(CountAssigns(worker), 1);
  const v1::Assign assign = worker.link->received.back().assign();
  EXPECT_EQ(assign.world_size(), 2);
  EXPECT_EQ(assign.ranks_size(), 2);
  EXPECT_EQ(assign.threads_per_rank(), 1);
  Accept(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::STARTING);
  Report(worker, RankMessage(job, 0, v1::READY));
  EXPECT_EQ(Get(job.uid()).state(), v1::STARTING);
  Report(worker, RankMessage(job, 1, v1::READY));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  Report(worker, StepsMessage(job, 1, 10));
  Report(worker, EndedMessage(job, 10, true));
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  for (int rank = 0; rank < 2; ++rank) {
    v1::WorkerMessage done = RankMessage(job, rank, v1::DONE);
    done.mutable_rank_report()->mutable_status()->set_exited(true);
    Report(worker, done);
  }
  Gone(worker, job);
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  EXPECT_EQ(job.first_step().step(), 1);
  EXPECT_EQ(job.last_step().step(), 10);
  EXPECT_EQ(job.failed_rank(), -1);
  EXPECT_TRUE(job.conditions().empty());
  EXPECT_EQ(LastAck(worker), worker.seq);
  EXPECT_EQ(core_->reports().num_fenced(), 0);
  EXPECT_EQ(core_->keeper().num_refused(), 0);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
}

TEST_F(CoreTest, WaitsWithAReasonInsteadOfFailing) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job big = Submit(TinyJob("big", 8));
  EXPECT_EQ(big.state(), v1::QUEUED);
  EXPECT_EQ(big.message(), "needs 8 CPU slots, cluster has 2");
  ASSERT_EQ(big.conditions_size(), 1);
  EXPECT_EQ(big.conditions(0).type(), "Waiting");
  // One that is larger than the cluster holds nobody back; one that only has to wait does.
  const v1::Job first = Submit(TinyJob("first", 1));
  EXPECT_EQ(first.state(), v1::ADMITTED);
  const v1::Job second = Submit(TinyJob("second", 2));
  EXPECT_EQ(second.message(), "needs 2 CPU slots, 1 of 2 are free");
  const v1::Job third = Submit(TinyJob("third", 1));
  EXPECT_EQ(third.message(), "job 'second' is ahead in the queue");
  // A second node brings room for those that wait, oldest first.
  Worker other = NewWorker("n2", 2);
  EXPECT_EQ(Get(second.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Get(third.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(Get(big.uid()).message(), "needs 8 CPU slots, cluster has 4");
}

TEST_F(CoreTest, FreedSlotsServeTheNext) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job first = StartRunning(worker, "first", 2);
  const v1::Job second = Submit(TinyJob("second", 2));
  EXPECT_EQ(second.state(), v1::QUEUED);
  Report(worker, EndedMessage(first, 10, true));
  EXPECT_EQ(Get(second.uid()).state(), v1::QUEUED);
  Gone(worker, first);
  EXPECT_EQ(Get(second.uid()).state(), v1::ADMITTED);
}

TEST_F(CoreTest, SubmitIsIdempotentByRequestId) {
  const auto first = TrySubmit(TinyJob("demo", 1), "id-1");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->existed());
  const auto again = TrySubmit(TinyJob("demo", 1), "id-1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->existed());
  EXPECT_EQ(again->job().uid(), first->job().uid());
  EXPECT_EQ(rpc::ReasonOf(TrySubmit(TinyJob("other", 1), "id-1").status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(rpc::ReasonOf(TrySubmit(TinyJob("other", 1), "").status()), "INVALID_REQUEST");
  StartCore();
  const auto later = TrySubmit(TinyJob("demo", 1), "id-1");
  ASSERT_TRUE(later.ok());
  EXPECT_TRUE(later->existed());
}

TEST_F(CoreTest, RefusesLiveNamesAndBadJobs) {
  const v1::Job job = Submit(TinyJob("demo", 1));
  const auto twice = TrySubmit(TinyJob("demo", 2));
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(rpc::ReasonOf(twice.status()), "NAME_IN_USE");
  ASSERT_TRUE(Cancel(job.uid(), false).ok());
  EXPECT_TRUE(TrySubmit(TinyJob("demo", 2)).ok()) << "an ended job's name is free";
  v1::JobSpec bad = TinyJob("bad", 1);
  bad.mutable_optimizer()->set_lr(-1);
  bad.mutable_training()->set_micro_batch_size(0);
  const auto refused = TrySubmit(bad);
  EXPECT_EQ(rpc::ReasonOf(refused.status()), "INVALID_SPEC");
  EXPECT_NE(base::Message(refused.status()).find("optimizer.lr"), std::string::npos);
  EXPECT_NE(base::Message(refused.status()).find("training.micro_batch_size"), std::string::npos);
}

TEST_F(CoreTest, UnknownJobNamesTheNearest) {
  Submit(TinyJob("fortunes", 1));
  v1::GetJobRequest request;
  request.mutable_job()->set_name("fortune");
  v1::Job job;
  const Status status = core_->api().jobs().Get(request, &job);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(rpc::ReasonOf(status), "UNKNOWN_JOB");
  EXPECT_NE(base::Message(status).find("did you mean 'fortunes'"), std::string::npos);
}

TEST_F(CoreTest, ListPagesNewestFirst) {
  for (int i = 0; i < 5; ++i) {
    Submit(TinyJob("job" + std::to_string(i), 1));
    Pass(seconds(1));
  }
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::string names;
  int pages = 0;
  do {
    v1::ListJobsResponse response;
    ASSERT_TRUE(core_->api().jobs().List(request, &response).ok());
    for (const v1::Job& job : response.jobs()) names += job.name() + " ";
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(names, "job4 job3 job2 job1 job0 ");
  EXPECT_EQ(pages, 3);
  request.set_page_token("nonsense");
  v1::ListJobsResponse response;
  EXPECT_EQ(rpc::ReasonOf(core_->api().jobs().List(request, &response)), "INVALID_REQUEST");
}

// Jobs with long texts: a page is a message (A2), whatever its size was asked to be.
TEST_F(CoreTest, APageOfTheListEndsWhereTheMessageWould) {
  constexpr int kJobs = 12;
  const std::string text(200'000, 'a');
  for (int i = 0; i < kJobs; ++i) {
    v1::JobSpec spec;
    const auto faults = spec::ParseJob(
        "name: r" + std::to_string(i) + "\nkind: generate\nread: {checkpoint: default/demo}\n", {},
        &spec);
    ASSERT_TRUE(faults.empty()) << spec::FormatFaults(faults);
    for (int prompt = 0; prompt < 4; ++prompt) spec.mutable_generate()->add_prompts(text);
    Submit(spec);
    Pass(seconds(1));
  }
  v1::ListJobsRequest request;
  int listed = 0;
  int pages = 0;
  do {
    v1::ListJobsResponse response;
    ASSERT_TRUE(core_->api().jobs().List(request, &response).ok());
    EXPECT_LT(response.ByteSizeLong(), static_cast<size_t>(control::kMaxMessageBytes));
    for (const v1::Job& job : response.jobs())
      EXPECT_EQ(job.name(), "r" + std::to_string(kJobs - ++listed));
    ASSERT_GT(response.jobs_size(), 0);
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, kJobs);
  EXPECT_EQ(pages, 3) << "of five jobs, 800,000 bytes each";
}

TEST_F(CoreTest, ARanksDeathFailsTheJobWithItsCause) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  v1::Job job = Submit(TinyJob("demo", 2));
  Accept(a, job);
  Accept(b, job);
  Report(a, RankMessage(job, 0, v1::READY));
  Report(b, RankMessage(job, 1, v1::READY));
  ASSERT_EQ(Get(job.uid()).state(), v1::RUNNING);
  // The neighbour notices first; the rank that was killed is blamed all the same.
  v1::WorkerMessage broken = RankMessage(job, 0, v1::FAULTED);
  broken.mutable_rank_report()->mutable_status()->set_exited(true);
  broken.mutable_rank_report()->mutable_status()->set_exit_code(75);
  Report(a, broken);
  EXPECT_EQ(Get(job.uid()).failed_rank(), 0);
  EXPECT_EQ(CountCommands(b, v1::Command::KILL), 1);
  v1::WorkerMessage killed = RankMessage(job, 1, v1::FAULTED);
  killed.mutable_rank_report()->mutable_status()->set_exited(true);
  killed.mutable_rank_report()->mutable_status()->set_exit_signal(9);
  killed.mutable_rank_report()->add_last_log_lines("step 7");
  Report(b, killed);
  Gone(a, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  Gone(b, job);
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.failed_rank(), 1);
  EXPECT_EQ(job.cause(), v1::INTERNAL);
  EXPECT_EQ(job.message(), "rank 1 on node b was ended by SIGKILL (signal 9)");
  ASSERT_EQ(job.last_log_lines_size(), 1);
  EXPECT_EQ(job.ranks(1).exit_signal(), 9);
}

TEST_F(CoreTest, RanksEndedByOurOwnKillAreNotBlamed) {
  Worker worker = NewWorker("n1", 2);
  v1::Job job = StartRunning(worker, "demo", 2);
  v1::WorkerMessage transient = RankMessage(job, 0, v1::FAULTED);
  transient.mutable_rank_report()->mutable_status()->set_exited(true);
  transient.mutable_rank_report()->mutable_status()->set_exit_code(75);
  Report(worker, transient);
  v1::WorkerMessage ack;
  ack.mutable_command_ack()->set_command_id(
      worker.link->received.back().has_command()
          ? worker.link->received.back().command().command_id()
          : "kill/" + job.uid() + "/1");
  ack.mutable_command_ack()->set_accepted(true);
  Report(worker, ack);
  v1::WorkerMessage killed = RankMessage(job, 1, v1::FAULTED);
  killed.mutable_rank_report()->mutable_status()->set_exited(true);
  killed.mutable_rank_report()->mutable_status()->set_exit_signal(9);
  Report(worker, killed);
  EXPECT_EQ(Get(job.uid()).failed_rank(), 0);
}

TEST_F(CoreTest, AFaultOfARanksOwnIsTheCauseThoughItIsHeardAfterTheKill) {
  Worker worker = NewWorker("n1", 2);
  v1::Job job = StartRunning(worker, "demo", 2);
  v1::WorkerMessage consequence = RankMessage(job, 1, v1::DONE);
  consequence.mutable_rank_report()->mutable_status()->set_exited(true);
  consequence.mutable_rank_report()->mutable_status()->set_exit_code(75);
  Report(worker, consequence);
  v1::WorkerMessage ack;
  ack.mutable_command_ack()->set_command_id(LastCommand(worker, v1::Command::KILL).command_id());
  ack.mutable_command_ack()->set_accepted(true);
  Report(worker, ack);
  EXPECT_EQ(Get(job.uid()).cause(), v1::NETWORK);
  v1::WorkerMessage fault = RankMessage(job, 0, v1::FAULTED);
  fault.mutable_rank_report()->set_cause(v1::STORAGE);
  fault.mutable_rank_report()->mutable_status()->set_exited(true);
  fault.mutable_rank_report()->mutable_status()->set_exit_code(73);
  Report(worker, fault);
  EXPECT_EQ(Get(job.uid()).cause(), v1::STORAGE);
  EXPECT_EQ(Get(job.uid()).failed_rank(), 0);
}

TEST_F(CoreTest, RefusalAndSilenceSendTheJobBackToTheQueue) {
  Worker a = NewWorker("a", 1);
  v1::Job job = Submit(TinyJob("demo", 1));
  Accept(a, job, /*accepted=*/false);
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::ADMITTED) << "the first retry comes at once";
  EXPECT_EQ(control::CountOfEpoch(job.epoch()), 2);
  Accept(a, job, /*accepted=*/false);
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  PassBeating(seconds(6), {&a});
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::ADMITTED);
  EXPECT_EQ(control::CountOfEpoch(job.epoch()), 3);
  // P6: no answer at all. The slot is not offered again before the agent says that it is free.
  PassBeating(seconds(32), {&a});
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  EXPECT_EQ(CountCommands(a, v1::Command::KILL), 1);
  v1::WorkerMessage late = RankMessage(job, 0, v1::READY);
  Report(a, late);
  EXPECT_EQ(core_->reports().num_fenced(), 0) << "epoch 3 is still the newest";
  Gone(a, job);
  PassBeating(seconds(12), {&a});
  EXPECT_EQ(control::CountOfEpoch(Get(job.uid()).epoch()), 4);
}

TEST_F(CoreTest, MessagesOfAClosedEpochAreRefusedAndAnswered) {
  Worker worker = NewWorker("n1", 1);
  v1::Job old = Submit(TinyJob("demo", 1));
  Accept(worker, old, /*accepted=*/false);
  ASSERT_EQ(control::CountOfEpoch(Get(old.uid()).epoch()), 2);
  Report(worker, StepsMessage(old, 1, 3));
  Report(worker, StepsMessage(old, 4, 6));
  EXPECT_EQ(core_->reports().num_fenced(), 2);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1) << "told once";
  EXPECT_FALSE(Get(old.uid()).has_last_step());
  EXPECT_EQ(Get(old.uid()).state(), v1::ADMITTED);
}

TEST_F(CoreTest, CancelWithSaveIsADurableOperation) {
  Worker worker = NewWorker("n1", 1);
  v1::Job job = StartRunning(worker, "demo", 1);
  const auto operation = Cancel(job.uid(), true, "c1");
  ASSERT_TRUE(operation.ok()) << operation.status();
  EXPECT_FALSE(operation->done());
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITH_SAVE), 1);
  EXPECT_EQ(Cancel(job.uid(), true, "c1")->name(), operation->name());
  EXPECT_EQ(Cancel(job.uid(), false, "c2")->name(), operation->name())
      << "a second user's cancel is the same";
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITH_SAVE), 1);
  bool answered = false;
  v1::WaitOperationRequest wait;
  wait.set_name(operation->name());
  wait.set_timeout_ms(60'000);
  core_->api().operations().Wait(wait, [&](const Status& status, const v1::Operation* done) {
    answered = status.ok() && done->done();
  });
  Report(worker, EndedMessage(job, 5, false));
  EXPECT_FALSE(answered);
  Gone(worker, job);
  Settle();
  EXPECT_TRUE(answered);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  const auto late = Cancel(job.uid(), false);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rpc::ReasonOf(late.status()), "WRONG_STATE");
}

TEST_F(CoreTest, StopGraceEndsInAKill) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  ASSERT_TRUE(Cancel(job.uid(), true).ok());
  PassBeating(seconds(598), {&worker});
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  PassBeating(seconds(4), {&worker});
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
}

TEST_F(CoreTest, CancelBeforeTrainingKillsAtOnce) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = Submit(TinyJob("demo", 1));
  Accept(worker, job);
  ASSERT_TRUE(Cancel(job.uid(), true).ok());
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 1);
  const v1::Job queued = Submit(TinyJob("queued", 1));
  EXPECT_TRUE(Cancel(queued.uid(), true)->done());
  EXPECT_EQ(Get(queued.uid()).state(), v1::CANCELLED);
}

TEST_F(CoreTest, FailedLastSave) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job lax = StartRunning(worker, "lax", 1);
  const v1::Job strict = StartRunning(worker, "strict", 1, "checkpoint: {strict: true}\n");
  Report(worker, EndedMessage(lax, 10, true, /*save_failed=*/true));
  Report(worker, EndedMessage(strict, 10, true, /*save_failed=*/true));
  Gone(worker, lax);
  Gone(worker, strict);
  EXPECT_EQ(Get(lax.uid()).state(), v1::SUCCEEDED);
  ASSERT_EQ(Get(lax.uid()).conditions_size(), 1);
  EXPECT_EQ(Get(lax.uid()).conditions(0).type(), "CheckpointStale");
  EXPECT_EQ(Get(strict.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(strict.uid()).cause(), v1::STORAGE);
}

TEST_F(CoreTest, RendezvousAcrossNodes) {
  Worker a = NewWorker("a", 1);
  Worker b = NewWorker("b", 1);
  const v1::Job job = Submit(TinyJob("demo", 2));
  Accept(a, job);
  Accept(b, job);
  v1::WorkerMessage get;
  get.mutable_rendezvous_get()->set_job_uid(job.uid());
  get.mutable_rendezvous_get()->set_epoch(job.epoch());
  get.mutable_rendezvous_get()->set_key("addr");
  core_->sessions().OnMessage(b.session, get);
  Settle();
  v1::WorkerMessage set;
  set.mutable_rendezvous_set()->set_job_uid(job.uid());
  set.mutable_rendezvous_set()->set_epoch(job.epoch());
  set.mutable_rendezvous_set()->set_key("addr");
  set.mutable_rendezvous_set()->set_value("10.0.0.1:4000");
  Report(a, set);
  ASSERT_TRUE(b.link->received.back().has_rendezvous_value());
  EXPECT_EQ(b.link->received.back().rendezvous_value().value(), "10.0.0.1:4000");
  // Soon it is on disk: a restarted coordinator still answers.
  Pass(milliseconds(300));
  EXPECT_EQ(LastAck(a), a.seq);
  StartCore();
  v1::HeldAllocation held;
  held.set_job_uid(job.uid());
  held.set_epoch(job.epoch());
  Connect(&b, 1, {held});
  core_->sessions().OnMessage(b.session, get);
  Settle();
  ASSERT_TRUE(b.link->received.back().has_rendezvous_value());
  EXPECT_EQ(b.link->received.back().rendezvous_value().value(), "10.0.0.1:4000");
}

TEST_F(CoreTest, MalformedReportsChangeNothing) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const std::string before = Get(job.uid()).SerializeAsString();
  for (const int rank : {-1, 1, 1 << 30}) Report(worker, RankMessage(job, rank, v1::FAULTED));
  Report(worker, RankMessage(job, 0, v1::SPAWNED));
  Report(worker, v1::WorkerMessage());
  v1::WorkerMessage empty;
  empty.mutable_job_report()->set_job_uid(job.uid());
  empty.mutable_job_report()->set_epoch(job.epoch());
  Report(worker, empty);
  EXPECT_EQ(core_->reports().num_malformed(), 5);
  // States that no worker can know, or that nobody knows; commands that nobody gave.
  for (const int state : {static_cast<int>(v1::UNKNOWN), static_cast<int>(v1::FENCED), 99, -7})
    Report(worker, RankMessage(job, 0, static_cast<v1::RankState>(state)));
  for (const std::string id : {"", "nonsense", "word/x", "dance/a/1", "kill/a/b", "kill/a/1/2"}) {
    v1::WorkerMessage ack;
    ack.mutable_command_ack()->set_command_id(id);
    Report(worker, ack);
    v1::Command command;
    command.set_command_id(id);
    command.set_job_uid(job.uid());
    command.set_epoch(job.epoch());
    Report(worker, DoneMessage(command, 1, 2));
  }
  EXPECT_EQ(core_->reports().num_malformed(), 5 + 4 + 12);
  EXPECT_EQ(Get(job.uid()).SerializeAsString(), before);
  Pass(milliseconds(300));
  EXPECT_EQ(LastAck(worker), worker.seq) << "they are acknowledged, else they came again for ever";
  // A stranger, and one that speaks before it registers.
  Worker stranger{.node = "", .uid = "u", .link = nullptr};
  Connect(&stranger, 1);
  EXPECT_EQ(stranger.link->end.code(), absl::StatusCode::kInvalidArgument);
  const auto link = std::make_shared<FakeLink>();
  const SessionId session = core_->sessions().Open(link);
  core_->sessions().OnMessage(session, StepsMessage(job, 1, 1));
  EXPECT_EQ(rpc::ReasonOf(link->end), "NOT_REGISTERED");
}

}  // namespace
}  // namespace mt::daemon
