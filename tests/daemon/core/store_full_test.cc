// A state disk that is full for a while: nothing acknowledged is lost, reads are answered, nothing
// is decided, and it heals by itself.
#include "daemon/authority/authority.h"
#include "tests/daemon/core/core_fixture.h"
#include "tests/daemon/core/fillable_store.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StoreFullTest : public CoreTest {
 protected:
  void SetUp() override { Restart(); }
  void Restart() {
    core_.reset();
    core_ = std::make_unique<Core>(&disk_, &clock_);
    ASSERT_TRUE(core_->Recover().ok());
    Settle();
  }
  // A submission as a client makes it: `*answer` is set when it is answered.
  void SubmitLater(const std::string& name, std::optional<Status>* answer) {
    v1::SubmitRequest request;
    *request.mutable_spec() = TinyJob(name, 1);
    request.set_request_id(name);
    const Status status = core_->api().jobs().Submit(request, "tester", &response_);
    core_->ledger().AfterCommit(
        [answer, status](const Status& commit) { *answer = commit.ok() ? status : commit; });
  }
  v1::WorkerMessage Beat(int64_t number) {
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_beat(number);
    return message;
  }
  static int64_t LastBeat(const Worker& worker) {
    int64_t beat = 0;
    for (const auto& message : worker.link->received)
      if (message.has_heartbeat_ack()) beat = message.heartbeat_ack().beat();
    return beat;
  }

  FillableStore disk_;
  v1::SubmitResponse response_;
};

TEST_F(StoreFullTest, WhatWasAskedIsAnsweredWhenItIsOnDisk) {
  disk_.full = true;
  std::optional<Status> answer;
  SubmitLater("demo", &answer);
  Settle();
  for (int i = 0; i < 60; ++i) {
    Pass(seconds(1));
    ASSERT_FALSE(answer.has_value()) << "it is not on disk";
    ASSERT_FALSE(core_->authority().GivesOrders());
    v1::ListNodesResponse nodes;
    core_->api().nodes().List(&nodes);
  }
  EXPECT_LE(disk_.commits, 65) << "about once a second";
  disk_.full = false;
  Pass(seconds(1));
  ASSERT_TRUE(answer.has_value()) << "healed within a second";
  EXPECT_TRUE(answer->ok()) << *answer;
  EXPECT_TRUE(core_->authority().GivesOrders());
  const std::string uid = response_.job().uid();
  EXPECT_EQ(Events("Submitted").size(), 1u) << "with its event";
  Restart();
  EXPECT_EQ(Get(uid).name(), "demo") << "and it is on disk";
}

// As a session's stream brings it: without the round that Report adds.
TEST_F(StoreFullTest, HeartbeatsAreAnsweredAndReportsWait) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, StepsMessage(job, 1, 3));
  Pass(milliseconds(300));
  const int64_t acked = LastAck(worker);
  ASSERT_EQ(acked, worker.seq);
  disk_.full = true;
  std::optional<Status> answer;
  SubmitLater("other", &answer);
  Settle();
  for (int i = 1; i <= 60; ++i) {
    core_->sessions().OnMessage(worker.session, Beat(i));
    Pass(seconds(2));
    EXPECT_EQ(LastBeat(worker), i);
  }
  const v1::WorkerMessage report = [&] {
    v1::WorkerMessage message = StepsMessage(job, 4, 6);
    message.set_seq(++worker.seq);
    return message;
  }();
  core_->sessions().OnMessage(worker.session, report);
  Pass(seconds(2));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 3) << "it is not taken";
  EXPECT_EQ(LastAck(worker), acked);
  EXPECT_EQ(CountAssigns(worker), 1) << "nothing is placed";
  EXPECT_FALSE(worker.link->closed);
  disk_.full = false;
  Pass(seconds(1));
  EXPECT_TRUE(worker.link->closed) << "so that it sends again what was not taken";
  EXPECT_TRUE(answer.has_value() && answer->ok());
  Connect(&worker, 2, {Held(job, v1::TRAINING)});
  core_->sessions().OnMessage(worker.session, report);
  Pass(milliseconds(300));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 6);
  EXPECT_EQ(LastAck(worker), worker.seq);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  PassBeating(seconds(2), {&worker});
  EXPECT_EQ(CountAssigns(worker), 1) << "the one that was kept is placed now";
}

TEST_F(StoreFullTest, NoLeaseAndNoLimitCountsMeanwhile) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const v1::Job late = Submit(TinyJob("late", 1, "resilience: {deadline: 300s}\n"));
  disk_.full = true;
  std::optional<Status> answer;
  SubmitLater("other", &answer);
  Settle();
  for (int i = 0; i < 600; ++i) Pass(seconds(1));
  EXPECT_EQ(Get(late.uid()).state(), v1::QUEUED);
  disk_.full = false;
  Pass(seconds(1));
  EXPECT_EQ(core_->ledger().FindWorker("n1")->node().name(), "n1");
  Pass(seconds(20));
  EXPECT_EQ(Get(job.uid()).ranks(0).state(), v1::READY) << "its lease is what it was";
  Pass(seconds(11));
  EXPECT_EQ(Get(job.uid()).ranks(0).state(), v1::UNKNOWN) << "and runs out as ever";
  Pass(seconds(300));
  EXPECT_EQ(Get(late.uid()).state(), v1::FAILED) << "so does a deadline";
}

TEST_F(StoreFullTest, EveryChangeIsRefusedAndEveryReadAnswered) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  disk_.full = true;
  std::optional<Status> answer;
  SubmitLater("other", &answer);
  Settle();
  const auto reason = [](const Status& status) { return rpc::ReasonOf(status); };
  EXPECT_EQ(reason(TrySubmit(TinyJob("third", 1)).status()), "STORE_READ_ONLY");
  EXPECT_EQ(reason(Pause(job.uid(), v1::PauseRequest::HOLD).status()), "STORE_READ_ONLY");
  EXPECT_EQ(reason(Resume(job.uid()).status()), "STORE_READ_ONLY");
  EXPECT_EQ(reason(Cancel(job.uid(), true).status()), "STORE_READ_ONLY");
  EXPECT_EQ(reason(Kill(job.uid()).status()), "STORE_READ_ONLY");
  EXPECT_EQ(reason(Delete(job.uid()).status()), "STORE_READ_ONLY");
  EXPECT_EQ(reason(Checkpoint(job.uid()).status()), "STORE_READ_ONLY");
  v1::UpdateJobRequest update;
  update.mutable_job()->set_uid(job.uid());
  v1::Job updated;
  EXPECT_EQ(reason(core_->api().jobs().Update(update, "tester", &updated)), "STORE_READ_ONLY");
  v1::DeclareDeadRequest dead;
  v1::Node node;
  EXPECT_EQ(reason(core_->api().nodes().DeclareDead(dead, "tester", &node)), "STORE_READ_ONLY");
  EXPECT_EQ(reason(core_->api().nodes().Delete({}, "tester")), "STORE_READ_ONLY");
  bool told = false;
  core_->ledger().AfterRound([&told](const Status& commit) { told = commit.ok(); });
  Settle();
  EXPECT_TRUE(told);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_FALSE(Events("StateChanged").empty());
}

TEST_F(StoreFullTest, AWaitEndsInTimeButNotBeforeTheEndIsOnDisk) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  const auto cancel = Cancel(job.uid(), true);
  int timed_out = 0, done = 0;
  v1::WaitOperationRequest wait;
  wait.set_name(cancel->name());
  wait.set_timeout_ms(5'000);
  core_->api().operations().Wait(wait, [&](const Status&, const v1::Operation* operation) {
    timed_out += !operation->done();
  });
  wait.set_timeout_ms(60'000);
  core_->api().operations().Wait(
      wait, [&](const Status&, const v1::Operation* operation) { done += operation->done(); });
  disk_.full = true;
  std::optional<Status> answer;
  SubmitLater("other", &answer);
  Settle();
  Pass(seconds(6));
  EXPECT_EQ(timed_out, 1);
  disk_.full = false;
  Pass(seconds(1));
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  disk_.full = true;
  Gone(worker, job);
  EXPECT_EQ(done, 0) << "it has ended, but that is not on disk";
  disk_.full = false;
  Pass(seconds(2));
  EXPECT_EQ(done, 1);
}

TEST_F(StoreFullTest, AStartOnAFullDiskServesReadsAndHeals) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  disk_.full = true;
  Restart();
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  if (core_->authority().GivesOrders()) {
    // Nothing had to be written at this start.
    std::optional<Status> answer;
    SubmitLater("other", &answer);
    Settle();
  }
  ASSERT_FALSE(core_->authority().GivesOrders());
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_TRUE(worker.link->closed);
  EXPECT_EQ(rpc::ReasonOf(worker.link->end), "STORE_READ_ONLY");
  for (int i = 0; i < 120; ++i) Pass(seconds(1));
  disk_.full = false;
  Pass(seconds(1));
  EXPECT_EQ(Get(job.uid()).ranks(0).state(), v1::READY) << "leases begin now";
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_FALSE(worker.link->closed);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
}

TEST_F(StoreFullTest, WhoWaitsIsToldWhenTheCoordinatorEnds) {
  disk_.full = true;
  std::optional<Status> answer;
  SubmitLater("demo", &answer);
  Settle();
  ASSERT_FALSE(answer.has_value());
  core_->Shutdown(base::Unavailable("stopping"));
  EXPECT_FALSE(core_->Commit().ok());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code(), absl::StatusCode::kResourceExhausted) << "it may not have been done";
}

}  // namespace
}  // namespace mt::daemon
