// What a node holds is compared with the ledger at every heartbeat, and mended where they differ.
#include "common/control/held_digest.h"
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

class HeldCheckTest : public CoreTest {
 protected:
  static uint64_t DigestOf(const v1::Job& job, int ranks, int ended = 0) {
    uint64_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank)
      sum += control::HeldRankHash(job.uid(), job.epoch(), rank, rank < ended);
    return sum;
  }
  // A heartbeat after everything that the worker has reported.
  void Beat(Worker& worker, uint64_t digest) { Beat(worker, digest, worker.seq); }
  void Beat(Worker& worker, uint64_t digest, int64_t newest_seq) {
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_beat(++beat_);
    message.mutable_heartbeat()->set_held_digest(digest);
    message.mutable_heartbeat()->set_newest_seq(newest_seq);
    core_->sessions().OnMessage(worker.session, message);
    Pass(seconds(2));
  }
  static int CountHeldRequests(const Worker& worker) {
    int count = 0;
    for (const auto& message : worker.link->received) count += message.has_held_request();
    return count;
  }
  void ReportHeld(Worker& worker, const std::vector<v1::HeldAllocation>& held) {
    v1::WorkerMessage message;
    message.mutable_held_report();
    for (const v1::HeldAllocation& one : held)
      *message.mutable_held_report()->add_allocations() = one;
    Report(worker, message);
  }
  void Acknowledge(Worker& worker, const v1::Command& command, bool accepted = true) {
    v1::WorkerMessage message;
    message.mutable_command_ack()->set_command_id(command.command_id());
    message.mutable_command_ack()->set_accepted(accepted);
    Report(worker, message);
  }
  int64_t Mismatches() { return core_->sessions().num_held_mismatches(); }

  int64_t beat_ = 0;
};

// It was made before the ranks were there, and comes after a registration that named them.
TEST_F(HeldCheckTest, AReportFromBeforeTheRegistrationEndsNothing) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  core_->sessions().OnClosed(worker.session);
  worker.link = std::make_shared<FakeLink>();
  worker.session = core_->sessions().Open(worker.link);
  v1::WorkerMessage message;
  v1::Register* hello = message.mutable_register_();
  hello->set_node("n1");
  hello->set_worker_uid(worker.uid);
  hello->set_boot_id("b");
  hello->add_slots()->set_device(v1::CPU_SLOT);
  hello->set_lowest_seq(worker.seq + 1);
  hello->set_newest_seq(worker.seq + 1);
  *hello->add_allocations() = Held(job, v1::TRAINING);
  core_->sessions().OnMessage(worker.session, message);
  Settle();
  ReportHeld(worker, {});
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  ReportHeld(worker, {});
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED) << "this one is of now";
}

TEST_F(HeldCheckTest, AnUndisturbedLifeHasNoMismatch) {
  Worker worker = NewWorker("n1", 2);
  Beat(worker, 0);
  const v1::Job job = Submit(TinyJob("demo", 2));
  Beat(worker, 0);  // the assignment is under way
  EXPECT_EQ(core_->ledger().HeldDigest("n1"), 0u);
  Accept(worker, job);
  Beat(worker, DigestOf(job, 2));
  for (int rank : {0, 1}) Report(worker, RankMessage(job, rank, v1::TRAINING));
  Beat(worker, DigestOf(job, 2));
  v1::WorkerMessage died = RankMessage(job, 0, v1::FAULTED);
  died.mutable_rank_report()->mutable_status()->set_exited(true);
  died.mutable_rank_report()->mutable_status()->set_exit_signal(9);
  Report(worker, died);
  // The kill of the other one is under way, and answered; the memory of its GPU is not free yet.
  Beat(worker, DigestOf(job, 2, 1));
  Acknowledge(worker, LastCommand(worker, v1::Command::KILL));
  Beat(worker, DigestOf(job, 2, 1));
  v1::WorkerMessage ended = RankMessage(job, 1, v1::DONE);
  ended.mutable_rank_report()->mutable_status()->set_exited(true);
  Report(worker, ended);
  Beat(worker, DigestOf(job, 2, 2));
  Gone(worker, job);
  Beat(worker, 0);
  EXPECT_EQ(Mismatches(), 0);
  EXPECT_EQ(CountHeldRequests(worker), 0);
}

TEST_F(HeldCheckTest, AnAllocationThatTheLedgerLostIsTakenBack) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  core_->ledger().EraseAllocation({job.uid(), job.epoch(), "n1"});
  Beat(worker, DigestOf(job, 1));
  EXPECT_EQ(Mismatches(), 1);
  EXPECT_EQ(CountHeldRequests(worker), 1);
  Beat(worker, DigestOf(job, 1));
  EXPECT_EQ(CountHeldRequests(worker), 1) << "it is asked once, and not answered yet";
  ReportHeld(worker, {Held(job, v1::TRAINING)});
  EXPECT_EQ(CountCommands(worker, v1::Command::KILL), 0);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(core_->ledger().AllocationsOnNode("n1").size(), 1u);
  for (int i = 0; i < 40; ++i) Beat(worker, DigestOf(job, 1));
  EXPECT_EQ(Mismatches(), 1);
}

TEST_F(HeldCheckTest, AnEndThatWasLostIsFound) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Beat(worker, 0);
  EXPECT_EQ(CountHeldRequests(worker), 1);
  ReportHeld(worker, {});
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_NE(Get(job.uid()).message().find("does not hold them any more"), std::string::npos);
  EXPECT_TRUE(core_->ledger().Allocations().empty());
}

TEST_F(HeldCheckTest, AnEndThatWasLostWhileStoppingIsTheEnd) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  ASSERT_TRUE(Kill(job.uid()).ok());
  Acknowledge(worker, LastCommand(worker, v1::Command::KILL));
  Beat(worker, 0);
  ReportHeld(worker, {});
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
}

TEST_F(HeldCheckTest, ARankWhoseEndTheLedgerMissedIsSeen) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartRunning(worker, "demo", 2);
  Beat(worker, DigestOf(job, 2, 1));
  ASSERT_EQ(CountHeldRequests(worker), 1);
  v1::HeldAllocation held = Held(job, v1::TRAINING, {0, 1});
  held.mutable_ranks(0)->set_exited(true);
  ReportHeld(worker, {held});
  for (int i = 0; i < 20; ++i) Beat(worker, DigestOf(job, 2, 1));
  EXPECT_EQ(Mismatches(), 1);
}

TEST_F(HeldCheckTest, ItIsNotDueWhileReportsOrAnswersAreUnderWay) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Beat(worker, 0, worker.seq + 1);
  EXPECT_EQ(Mismatches(), 0) << "a report is on its way";
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::HOLD).ok());
  Beat(worker, 0);
  EXPECT_EQ(Mismatches(), 0) << "a command is not answered";
  // It is not waited for longer than P6.
  for (int i = 0; i < 16; ++i) Beat(worker, 0);
  EXPECT_EQ(Mismatches(), 1);
}

TEST_F(HeldCheckTest, AnAssignmentUnderWayIsNotMissing) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartRunning(worker, "demo", 1);
  core_->ledger().EraseAllocation({job.uid(), job.epoch(), "n1"});
  Beat(worker, DigestOf(job, 1));
  ASSERT_EQ(CountHeldRequests(worker), 1);
  const v1::Job next = Submit(TinyJob("next", 1));
  ASSERT_EQ(next.state(), v1::ADMITTED);
  ReportHeld(worker, {Held(job, v1::TRAINING)});
  EXPECT_EQ(Get(next.uid()).state(), v1::ADMITTED);
  Accept(worker, next);
  EXPECT_EQ(Get(next.uid()).state(), v1::STARTING);
}

TEST_F(HeldCheckTest, AnAgentOfBeforeThereWereDigestsIsLeftAlone) {
  Worker worker = NewWorker("n1", 1);
  StartRunning(worker, "demo", 1);
  for (int i = 0; i < 40; ++i) Beat(worker, 0, 0);
  EXPECT_EQ(Mismatches(), 0);
}

TEST_F(HeldCheckTest, TheLedgersDigestSurvivesARestart) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  ASSERT_EQ(core_->ledger().HeldDigest("n1"), DigestOf(job, 1));
  StartCore();
  EXPECT_EQ(core_->ledger().HeldDigest("n1"), DigestOf(job, 1));
}

}  // namespace
}  // namespace mt::daemon
