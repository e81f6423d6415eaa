// The cost of a view: one level is read, and memory does not grow with the number of steps.
#include "daemon/telemetry/history_view.h"

#include <gtest/gtest.h>

#include "tests/daemon/telemetry/history_fixture.h"

namespace mt::daemon {
namespace {

TEST_F(HistoryTest, MemoryAndReadingDoNotGrowWithTheSteps) {
  AppendRange(1, 10'240);
  Flush();
  const size_t small = history_->MemoryBytes();
  for (int64_t step = 10'241; step <= 204'800; step += 1'024) {
    AppendRange(step, step + 1'023);
    Flush();
  }
  // Only the index grows, by about 200 bytes per 1,024 steps; a million steps are five times this.
  EXPECT_LT(history_->MemoryBytes() - small, 1U << 20);
  const HistoryView view = history_->Query(kJob, {.points = 1'000});
  EXPECT_EQ(view.rows.steps.back(), 204'800);
  EXPECT_LE(view.rows.num_rows(), 1'000U);
  EXPECT_GE(view.rows.num_rows(), 250U);
  // At most 4,000 buckets of 28 columns with three numbers each.
  EXPECT_LT(view.bytes_read, 4'100 * 28 * 24);
}

TEST(HistoryViewTest, TheLevelFollowsFromStepsAndPoints) {
  EXPECT_EQ(ChooseHistoryLevel(1, 1'000), 0);
  EXPECT_EQ(ChooseHistoryLevel(4'000, 1'000), 0);
  EXPECT_EQ(ChooseHistoryLevel(4'001, 1'000), 1);
  EXPECT_EQ(ChooseHistoryLevel(1'000'000, 1'000), 2);
  EXPECT_EQ(ChooseHistoryLevel(1'000'000'000, 1), 5);
}

}  // namespace
}  // namespace mt::daemon
