// Which reports of a worker are taken: those of a proven node, each number once and in order.
#include "tests/daemon/workers/identity_rig.h"

namespace mt::daemon {
namespace {

using TakenReportsTest = IdentityTest;

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(TakenReportsTest, AForgedNumberLosesNoReport) {
  Worker worker = NewProcess("n1");
  ASSERT_TRUE(Register(&worker, {}));
  const v1::Job job = StartRunning(worker, "demo", 1);
  Send(worker, StepsMessage(job, 1, 1), worker.seq + (int64_t{1} << 40));
  EXPECT_TRUE(worker.link->closed);
  EXPECT_EQ(ReasonOf(worker), "REPORT_OUT_OF_ORDER");
  EXPECT_EQ(core_->reports().num_malformed(), 1);
  EXPECT_EQ(LastAck(worker), worker.seq) << "nothing beyond was acknowledged";
  // The worker's own reports are taken as before.
  ASSERT_TRUE(Register(
      &worker,
      {.held = {Held(job, v1::TRAINING)}, .lowest_seq = worker.seq + 1, .newest_seq = worker.seq}));
  Report(worker, StepsMessage(job, 1, 3));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 3);
  Pass(milliseconds(300));  // steps wait for the next commit
  EXPECT_EQ(LastAck(worker), worker.seq);
}

TEST_F(TakenReportsTest, NothingIsTakenOfAWorkerThatIsNotLetIn) {
  Worker worker = NewProcess("n1");
  ASSERT_TRUE(Register(&worker, {}));
  const v1::Job job = StartRunning(worker, "demo", 1);
  Worker forger = NewProcess("n1");
  EXPECT_FALSE(Register(&forger, {.boot = "boot-2"}));
  Send(forger, StepsMessage(job, 1, 9), worker.seq + 1);
  Worker mute{.node = "n1", .uid = "", .link = std::make_shared<FakeLink>()};
  mute.session = core_->sessions().Open(mute.link);
  Send(mute, StepsMessage(job, 1, 9), worker.seq + 1);
  EXPECT_EQ(ReasonOf(mute), "NOT_REGISTERED");
  EXPECT_EQ(Get(job.uid()).last_step().step(), 0);
  Report(worker, StepsMessage(job, 1, 3));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 3);
}

TEST_F(TakenReportsTest, AMarkerCoversWhatWasGivenUpAndItIsToldOnce) {
  Worker worker = NewProcess("n1");
  ASSERT_TRUE(Register(&worker, {}));
  const v1::Job job = StartRunning(worker, "demo", 1);
  const int64_t before = worker.seq;
  v1::WorkerMessage marker = StepsMessage(job, 10, 10);
  marker.set_first_seq(before + 1);
  marker.set_dropped_steps(9);
  Send(worker, marker, before + 4);
  marker = StepsMessage(job, 20, 20);
  marker.set_first_seq(before + 5);
  marker.set_dropped_steps(5);
  Send(worker, marker, before + 7);
  EXPECT_FALSE(worker.link->closed);
  Pass(milliseconds(300));  // steps wait for the next commit
  EXPECT_EQ(LastAck(worker), before + 7);
  EXPECT_EQ(Get(job.uid()).last_step().step(), 20);
  // They are told together, when the worker has sent what it keeps; a restart does not forget it.
  EXPECT_EQ(Events("StepsThinned").size(), 0u);
  StartCore();
  ASSERT_TRUE(Register(
      &worker,
      {.held = {Held(job, v1::TRAINING)}, .lowest_seq = before + 8, .newest_seq = before + 7}));
  PassBeating(seconds(4), {&worker});
  ASSERT_EQ(Events("StepsThinned").size(), 1u);
  EXPECT_NE(Events("StepsThinned")[0].message().find("14"), std::string::npos);
  // A marker that begins too late leaves a gap; one that makes no sense is refused.
  marker.set_first_seq(before + 9);
  Send(worker, marker, before + 10);
  EXPECT_EQ(ReasonOf(worker), "REPORT_OUT_OF_ORDER");
}

TEST_F(TakenReportsTest, WhatAWorkerDoesNotKeepAnyMoreIsRecordedAsLost) {
  Worker worker = NewProcess("n1");
  ASSERT_TRUE(Register(&worker, {}));
  const v1::Job job = StartRunning(worker, "demo", 1);
  core_->sessions().OnClosed(worker.session);
  // As after a restore: it has been told that all up to 20 is on disk, by a store that is gone.
  ASSERT_TRUE(
      Register(&worker, {.held = {Held(job, v1::TRAINING)}, .lowest_seq = 21, .newest_seq = 22}));
  ASSERT_EQ(Events("ReportsLost").size(), 1u);
  EXPECT_NE(Events("ReportsLost")[0].message().find(std::to_string(20 - worker.seq) + " "),
            std::string::npos)
      << Events("ReportsLost")[0].message();
  EXPECT_TRUE(std::any_of(worker.link->received.begin(), worker.link->received.end(),
                          [](const auto& message) { return message.has_held_request(); }));
  Send(worker, StepsMessage(job, 1, 3), 21);
  EXPECT_FALSE(worker.link->closed);
  EXPECT_EQ(Get(job.uid()).last_step().step(), 3);
  // The same for a process that this store does not know.
  core_->sessions().OnClosed(worker.session);
  Worker next = NewProcess("n1");
  ASSERT_TRUE(
      Register(&next, {.held = {Held(job, v1::TRAINING)}, .lowest_seq = 6, .newest_seq = 5}));
  EXPECT_EQ(Events("ReportsLost").size(), 2u);
  Send(next, StepsMessage(job, 4, 5), 6);
  EXPECT_EQ(Get(job.uid()).last_step().step(), 5);
}

TEST_F(TakenReportsTest, AStoreThatKnowsMoreThanTheWorkerHasSaidTakesItsReports) {
  Worker worker = NewProcess("n1");
  ASSERT_TRUE(Register(&worker, {}));
  const v1::Job job = StartRunning(worker, "demo", 1);
  // What an earlier version made of a forged number.
  v1::StoredWorker* stored = core_->ledger().FindWorker("n1");
  stored->set_acked_seq(int64_t{1} << 40);
  core_->ledger().MarkWorker(*stored, /*urgent=*/true);
  Settle();
  core_->sessions().OnClosed(worker.session);
  ASSERT_TRUE(Register(
      &worker,
      {.held = {Held(job, v1::TRAINING)}, .lowest_seq = worker.seq + 1, .newest_seq = worker.seq}));
  Report(worker, StepsMessage(job, 1, 3));
  EXPECT_EQ(Get(job.uid()).last_step().step(), 3);
}

}  // namespace
}  // namespace mt::daemon
