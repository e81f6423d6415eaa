// Numbering and acknowledgement of reports, and the bound on step records.
#include "worker/node/outbox/outbox.h"

#include <vector>

#include <gtest/gtest.h>

#include "megatrain/v1/worker.pb.h"
#include "worker/node/ranks/rank_verdict.h"

namespace mt::node {
namespace {

using megatrain::v1::WorkerMessage;

WorkerMessage Steps(int64_t first, int count) {
  WorkerMessage message;
  for (int i = 0; i < count; ++i) message.mutable_steps()->add_steps()->set_step(first + i);
  return message;
}

std::vector<int64_t> KeptSteps(const Outbox& outbox) {
  std::vector<int64_t> steps;
  outbox.ForEach([&steps](const WorkerMessage& message) {
    for (const auto& step : message.steps().steps()) steps.push_back(step.step());
  });
  return steps;
}

TEST(OutboxTest, NumbersFromOneAndForgetsWhatIsAcknowledged) {
  Outbox outbox(100);
  EXPECT_EQ(outbox.Add({}).seq(), 1);
  EXPECT_EQ(outbox.Add(Steps(1, 3)).seq(), 2);
  EXPECT_EQ(outbox.Add({}).seq(), 3);
  outbox.Acknowledge(2);
  EXPECT_EQ(outbox.num_reports(), 1);
  EXPECT_EQ(outbox.num_steps(), 0);
  EXPECT_EQ(outbox.Add({}).seq(), 4);
}

TEST(OutboxTest, TellsWhoAskedOnceInOrder) {
  Outbox outbox(100);
  std::vector<int> told;
  for (int i = 1; i <= 4; ++i) outbox.Add(Steps(i, 1), [&told, i] { told.push_back(i); });
  outbox.Acknowledge(0);
  EXPECT_TRUE(told.empty());
  outbox.Acknowledge(3);
  outbox.Acknowledge(3);
  EXPECT_EQ(told, (std::vector<int>{1, 2, 3}));
}

TEST(OutboxTest, AThinnedReportIsSpokenForByTheNext) {
  Outbox outbox(4);
  std::vector<int> told;
  for (int i = 1; i <= 5; ++i) outbox.Add(Steps(i, 1), [&told, i] { told.push_back(i); });
  EXPECT_EQ(outbox.num_reports(), 4);  // 2 is gone
  outbox.Acknowledge(5);
  EXPECT_EQ(told, (std::vector<int>{1, 3, 4, 5}));
}

TEST(OutboxTest, ThinsTheOlderHalfOfTheSteps) {
  Outbox outbox(8);
  outbox.Add(Steps(1, 4));
  WorkerMessage other;
  other.mutable_job_report();
  outbox.Add(other);
  outbox.Add(Steps(5, 4));
  EXPECT_EQ(outbox.thinned_steps(), 0);
  outbox.Add(Steps(9, 2));
  // 10 steps: every second one of the first report's four was dropped.
  EXPECT_EQ(KeptSteps(outbox), (std::vector<int64_t>{1, 3, 5, 7, 9, 10}));
  EXPECT_EQ(outbox.thinned_steps(), 4);
  EXPECT_EQ(outbox.num_steps(), 6);
  EXPECT_EQ(outbox.num_reports(), 4);  // other reports are never dropped
}

TEST(OutboxTest, ReportsLeftWithoutStepsGo) {
  Outbox outbox(4);
  for (int64_t step = 1; step <= 5; ++step) outbox.Add(Steps(step, 1));
  EXPECT_EQ(KeptSteps(outbox), (std::vector<int64_t>{1, 3, 4, 5}));
  EXPECT_EQ(outbox.num_reports(), 4);
}

TEST(OutboxTest, TheNextReportCoversThoseThatWent) {
  Outbox outbox(4);
  EXPECT_EQ(outbox.lowest_seq(), 1);
  EXPECT_EQ(outbox.newest_seq(), 0);
  for (int64_t step = 1; step <= 11; ++step) outbox.Add(Steps(step, 1));
  // Every number from the first kept one on is covered, each by one report.
  int64_t next = 1;
  int64_t dropped = 0;
  outbox.ForEach([&](const WorkerMessage& message) {
    EXPECT_EQ(message.first_seq() != 0 ? message.first_seq() : message.seq(), next);
    EXPECT_EQ(message.dropped_steps(), message.seq() - next) << "one step each";
    next = message.seq() + 1;
    dropped += message.dropped_steps();
  });
  EXPECT_EQ(next, 12);
  EXPECT_EQ(dropped, outbox.thinned_steps());
  EXPECT_GT(dropped, 5);
  // An acknowledgement within a range leaves the report that covers it.
  const int64_t lowest = outbox.lowest_seq();
  outbox.Acknowledge(lowest);
  outbox.Acknowledge(10);
  EXPECT_EQ(outbox.newest_seq(), 11);
  EXPECT_LE(outbox.lowest_seq(), 11);
  outbox.Acknowledge(11);
  EXPECT_EQ(outbox.lowest_seq(), 12);
}

TEST(OutboxTest, AReportThatLosesSomeOfItsStepsSaysSo) {
  Outbox outbox(8);
  outbox.Add(Steps(1, 4));
  outbox.Add(Steps(5, 5));
  std::vector<int64_t> dropped;
  outbox.ForEach([&](const WorkerMessage& message) {
    dropped.push_back(message.dropped_steps());
    EXPECT_EQ(message.first_seq(), 0);
  });
  EXPECT_EQ(dropped, (std::vector<int64_t>{2, 0}));
}

TEST(RankVerdictTest, SaysHowARankEnded) {
  const auto signaled = JudgeExit({.known = true, .signal = 9}, {});
  EXPECT_EQ(signaled.message, "killed by signal 9 (Killed)");
  EXPECT_FALSE(signaled.clean || signaled.transient);
  const auto config = JudgeExit({.known = true, .code = 64}, {});
  EXPECT_EQ(config.cause, megatrain::v1::USER_ERROR);
  const auto lost = JudgeExit({.known = true, .code = 75}, {});
  EXPECT_TRUE(lost.transient);
  EXPECT_EQ(lost.cause, megatrain::v1::NETWORK);
  const auto unknown = JudgeExit({.known = false, .error = "its mt-shim ended"}, {});
  EXPECT_EQ(unknown.message, "its mt-shim ended");
  EXPECT_TRUE(JudgeExit({.known = true, .code = 0}, {}).clean);
}

}  // namespace
}  // namespace mt::node
