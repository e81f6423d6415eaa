// The arithmetic behind hidden and exposed communication, on intervals and spans made by hand.
#include "worker/bench/axis_times.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace mt::bench {
namespace {

using parallel::CommRecord;
using parallel::CommSpan;
using parallel::CommUse;
using parallel::SpanKind;

using Pairs = std::vector<std::pair<double, double>>;

std::vector<Interval> Intervals(const Pairs& pairs) {
  std::vector<Interval> intervals;
  intervals.reserve(pairs.size());
  for (const auto& [begin, end] : pairs) intervals.push_back({.begin = begin, .end = end});
  return intervals;
}

Pairs UnionOf(const Pairs& pairs) {
  Pairs merged;
  for (const Interval& interval : Union(Intervals(pairs)))
    merged.emplace_back(interval.begin, interval.end);
  return merged;
}

TEST(IntervalTest, AUnionIsInOrderAndWithoutContact) {
  EXPECT_EQ(UnionOf({}), Pairs{});
  EXPECT_EQ(UnionOf({{3, 4}, {1, 2}}), (Pairs{{1, 2}, {3, 4}}));
  EXPECT_EQ(UnionOf({{1, 3}, {2, 5}}), (Pairs{{1, 5}}));
  EXPECT_EQ(UnionOf({{1, 2}, {2, 3}}), (Pairs{{1, 3}})) << "they touch";
  EXPECT_EQ(UnionOf({{1, 9}, {2, 3}, {4, 5}, {8, 10}}), (Pairs{{1, 10}}));
  EXPECT_EQ(UnionOf({{2, 2}, {5, 4}, {-1, 0}}), (Pairs{{-1, 0}})) << "empty ones are left out";
}

TEST(IntervalTest, CoverIsWhatTheyShare) {
  const std::vector<Interval> cover = Intervals({{1, 2}, {4, 6}, {8, 9}});
  const auto covered = [&](double begin, double end) {
    return Covered({.begin = begin, .end = end}, cover);
  };
  EXPECT_EQ(covered(0, 10), 4);
  EXPECT_EQ(covered(0, 1), 0);
  EXPECT_EQ(covered(2, 4), 0);
  EXPECT_EQ(covered(1.5, 5), 1.5);
  EXPECT_EQ(covered(4.5, 5), 0.5);
  EXPECT_EQ(covered(5, 8.25), 1.25);
  EXPECT_EQ(covered(9, 20), 0);
  EXPECT_EQ(Covered({.begin = 0, .end = 1}, {}), 0);
}

CommRecord Record(int64_t steps, std::vector<CommSpan> spans) {
  CommRecord record{.steps = steps, .spans = std::move(spans)};
  for (const CommSpan& span : record.spans) {
    if (span.kind != SpanKind::kWait) ++record.calls.at(static_cast<size_t>(span.use));
  }
  return record;
}

// The axis' entry, which must be there once.
AxisTime Of(const std::string& axis, const CommRecord& record) {
  AxisTime found;
  int count = 0;
  for (const AxisTime& time : AxisTimes(record)) {
    if (time.axis != axis) continue;
    found = time;
    ++count;
  }
  EXPECT_EQ(count, 1) << axis;
  return found;
}

TEST(AxisTimesTest, EveryAxisIsThereAndNothingWithoutSteps) {
  std::vector<std::string> axes;
  for (const AxisTime& time : AxisTimes(Record(1, {}))) {
    axes.push_back(time.axis);
    EXPECT_EQ(time.calls, 0);
    EXPECT_EQ(time.seconds, 0);
    EXPECT_EQ(time.exposed, 0);
  }
  EXPECT_EQ(axes, (std::vector<std::string>{"tp", "pp", "dp", "world"}));
  EXPECT_TRUE(AxisTimes(Record(0, {})).empty());
}

TEST(AxisTimesTest, ExposedIsWhatTheComputeStreamWaitsFor) {
  // Of two calls of 4 s the first is waited for during its last second, the second not at all.
  const CommRecord record = Record(2, {{CommUse::kReplicas, SpanKind::kBeside, 10, 14},
                                       {CommUse::kReplicas, SpanKind::kWait, 13, 14.5},
                                       {CommUse::kReplicas, SpanKind::kBeside, 15, 19},
                                       {CommUse::kReplicas, SpanKind::kWait, 19, 20}});
  const AxisTime time = Of("dp", record);
  EXPECT_EQ(time.calls, 1) << "of a step";
  EXPECT_EQ(time.seconds, 4);
  EXPECT_EQ(time.exposed, 0.5);
  EXPECT_EQ(time.hidden(), 3.5);
}

TEST(AxisTimesTest, WaitsThatOverlapCountOnce) {
  const CommRecord record = Record(1, {{CommUse::kParcel, SpanKind::kBeside, 0, 10},
                                       {CommUse::kParcel, SpanKind::kWait, 1, 4},
                                       {CommUse::kParcel, SpanKind::kWait, 2, 5}});
  EXPECT_EQ(Of("pp", record).exposed, 4);
}

TEST(AxisTimesTest, AnInlineCallIsExposedAndExposesWhatRunsBesideIt) {
  const CommRecord record = Record(1, {{CommUse::kReplicas, SpanKind::kInline, 0, 2},
                                       {CommUse::kReplicas, SpanKind::kBeside, 1, 4}});
  const AxisTime time = Of("dp", record);
  EXPECT_EQ(time.seconds, 5);
  EXPECT_EQ(time.exposed, 3);
  EXPECT_EQ(time.hidden(), 2);
}

TEST(AxisTimesTest, AWaitForAnotherAxisHides) {
  const CommRecord record = Record(1, {{CommUse::kReplicas, SpanKind::kBeside, 0, 4},
                                       {CommUse::kParcel, SpanKind::kWait, 0, 4},
                                       {CommUse::kWorld, SpanKind::kInline, 4, 5}});
  EXPECT_EQ(Of("dp", record).exposed, 0);
  EXPECT_EQ(Of("pp", record).seconds, 0) << "a wait is no call";
  EXPECT_EQ(Of("world", record).exposed, 1);
}

TEST(AxisTimesTest, WaitsOfOneUseExposeTheOthersOfItsAxis) {
  const CommRecord record = Record(
      1, {{CommUse::kTable, SpanKind::kInline, 0, 2}, {CommUse::kParcel, SpanKind::kBeside, 1, 3}});
  const AxisTime time = Of("pp", record);
  EXPECT_EQ(time.calls, 2);
  EXPECT_EQ(time.seconds, 4);
  EXPECT_EQ(time.exposed, 3);
}

// The clock was full before the first of them: the others alone would look like all there is.
TEST(AxisTimesTest, CallsOfWhichNoneWasTimedAreNotLeftOut) {
  CommRecord record = Record(1, {{CommUse::kParcel, SpanKind::kBeside, 0, 1}});
  EXPECT_FALSE(AxisTimes(record).empty());
  record.calls[static_cast<size_t>(CommUse::kReplicas)] = 3;
  EXPECT_TRUE(AxisTimes(record).empty());
}

TEST(AxisTimesTest, WhatWasNotTimedCountsAsWhatWas) {
  // 34 calls of layers of which 2 were timed, and one of partial gradients, over 2 steps.
  CommRecord record = Record(2, {{CommUse::kLayer, SpanKind::kBeside, 0, 1},
                                 {CommUse::kLayer, SpanKind::kBeside, 2, 5},
                                 {CommUse::kLayer, SpanKind::kWait, 4, 5},
                                 {CommUse::kPartial, SpanKind::kInline, 6, 8}});
  record.calls[static_cast<size_t>(CommUse::kLayer)] = 34;
  const AxisTime time = Of("tp", record);
  EXPECT_EQ(time.calls, 17.5);
  EXPECT_EQ(time.seconds, 17 * 4 / 2.0 + 1);
  EXPECT_EQ(time.exposed, 17 * 1 / 2.0 + 1);
}

}  // namespace
}  // namespace mt::bench
