// The five counters of a run: each moves behind the one before it, and nothing overtakes.
#include "worker/train/step_cursor.h"

#include <gtest/gtest.h>

namespace mt::train {
namespace {

TEST(StepCursorTest, BeginsWhereTheRunGoesOnFrom) {
  const StepCursor cursor(12);
  EXPECT_EQ(cursor.start(), 12);
  EXPECT_EQ(cursor.last(), 12);
  EXPECT_EQ(cursor.counted(), 12);
  EXPECT_EQ(cursor.read(), 12);
  EXPECT_EQ(cursor.acted(), 12);
  EXPECT_EQ(cursor.next(), 13);
  EXPECT_FALSE(cursor.HasUnacted());
}

TEST(StepCursorTest, MovesByOneStepAndReturnsIt) {
  StepCursor cursor(4);
  EXPECT_EQ(cursor.Enqueue(), 5);
  EXPECT_EQ(cursor.Enqueue(), 6);
  EXPECT_EQ(cursor.Count(), 5);
  EXPECT_EQ(cursor.Count(), 6);
  EXPECT_EQ(cursor.Read(), 5);
  EXPECT_EQ(cursor.Act(), 5);
  EXPECT_EQ(cursor.start(), 4);
  EXPECT_EQ(cursor.last(), 6);
  EXPECT_EQ(cursor.counted(), 6);
  EXPECT_EQ(cursor.read(), 5);
  EXPECT_EQ(cursor.acted(), 5);
  EXPECT_TRUE(cursor.HasUnacted());
}

TEST(StepCursorTest, TheBitsOfAStepMustActBeforeTheStepTwoLater) {
  StepCursor cursor(0);
  EXPECT_FALSE(cursor.MustActBefore(1));
  cursor.Enqueue();
  EXPECT_FALSE(cursor.MustActBefore(2));
  cursor.Enqueue();
  EXPECT_TRUE(cursor.MustActBefore(3));
  cursor.Count();
  cursor.Read();
  cursor.Act();
  EXPECT_FALSE(cursor.MustActBefore(3));
  EXPECT_TRUE(cursor.MustActBefore(4));
}

TEST(StepCursorDeathTest, NothingOvertakes) {
  StepCursor cursor(0);
  EXPECT_DEATH(cursor.Count(), "no step is left to count");
  cursor.Enqueue();
  EXPECT_DEATH(cursor.Read(), "once its times are known");
  cursor.Count();
  EXPECT_DEATH(cursor.Act(), "once its outcome is known");
  cursor.Enqueue();
  EXPECT_DEATH(cursor.Enqueue(), "have not acted");
  cursor.Read();
  EXPECT_DEATH(cursor.Enqueue(), "have not acted");
  cursor.Act();
  EXPECT_EQ(cursor.Enqueue(), 3);
}

TEST(RecentStepsTest, KeepsTheNewestThreeApart) {
  RecentSteps<int64_t> values;
  for (int64_t step = 1; step <= 7; ++step) values[step] = step;
  EXPECT_EQ(values[5], 5);
  EXPECT_EQ(values[6], 6);
  EXPECT_EQ(values[7], 7);
}

}  // namespace
}  // namespace mt::train
