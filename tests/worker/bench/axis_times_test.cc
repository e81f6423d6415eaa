// The arithmetic behind hidden and exposed communication, on intervals and spans made by hand.
#include "worker/bench/axis_times.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/layout/mesh.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/bench/bubble.h"
#include "worker/parallel/comm_spans.h"
#include "worker/trace/comm_streams.h"

namespace mt::bench {
namespace {

using parallel::CommRecord;
using parallel::CommSpan;
using parallel::CommUse;
using parallel::SpanKind;
namespace v1 = megatrain::v1;

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

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
  const std::vector<Interval> cover = Intervals({{10, 20}, {40, 60}, {80, 90}});
  const auto covered = [&](int64_t begin, int64_t end) {
    return Covered({.begin = begin, .end = end}, cover);
  };
  EXPECT_EQ(covered(0, 100), 40);
  EXPECT_EQ(covered(0, 10), 0);
  EXPECT_EQ(covered(20, 40), 0);
  EXPECT_EQ(covered(15, 50), 15);
  EXPECT_EQ(covered(45, 50), 5);
  EXPECT_EQ(covered(50, 83), 13);
  EXPECT_EQ(covered(90, 200), 0);
  EXPECT_EQ(Covered({.begin = 0, .end = 1}, {}), 0);
}

CommRecord Record(int64_t steps, std::vector<CommSpan> spans) {
  CommRecord record{.steps = steps, .spans = std::move(spans)};
  for (const CommSpan& span : record.spans) {
    if (span.kind == SpanKind::kBeside || span.kind == SpanKind::kInline)
      ++record.calls.at(static_cast<size_t>(span.use));
  }
  return record;
}

// Of rank 0 of two stages.
v1::RankTrace TraceOf(const CommRecord& record, int rank = 0) {
  const layout::Mesh mesh = layout::Mesh::Create({.pp = 2}).value();
  v1::RankTrace trace;
  trace.set_rank(rank);
  trace.set_first_step(1);
  trace.set_last_step(record.steps);
  trace::AddStreams(record, trace::NamesOf(mesh, rank, /*chunks=*/1), trace::ClockMap(), &trace);
  return trace;
}

// The axis' entry, which must be there once.
AxisTime Of(const std::string& axis, const CommRecord& record) {
  AxisTime found;
  int count = 0;
  for (const AxisTime& time : AxisTimes(TraceOf(record))) {
    if (time.axis != axis) continue;
    found = time;
    ++count;
  }
  EXPECT_EQ(count, 1) << axis;
  return found;
}

TEST(AxisTimesTest, EveryAxisIsThereAndNothingWithoutSteps) {
  std::vector<std::string> axes;
  for (const AxisTime& time : AxisTimes(TraceOf(Record(1, {})))) {
    axes.push_back(time.axis);
    EXPECT_EQ(time.calls, 0);
    EXPECT_EQ(time.seconds, 0);
    EXPECT_EQ(time.exposed, 0);
  }
  EXPECT_EQ(axes, (std::vector<std::string>{"tp", "pp", "dp", "world"}));
  EXPECT_TRUE(AxisTimes(TraceOf(Record(0, {}))).empty());
  EXPECT_TRUE(GroupTimes(v1::JobTrace()).empty());
}

TEST(AxisTimesTest, ExposedIsWhatTheComputeStreamWaitsFor) {
  // Of two calls of 4 s the first is waited for during its last second, the second not at all.
  const CommRecord record = Record(2, {{CommUse::kReduce, SpanKind::kBeside, 10, 14},
                                       {CommUse::kReduce, SpanKind::kWait, 13, 14.5},
                                       {CommUse::kReduce, SpanKind::kBeside, 15, 19},
                                       {CommUse::kReduce, SpanKind::kWait, 19, 20}});
  const AxisTime time = Of("dp", record);
  EXPECT_EQ(time.calls, 1) << "of a step";
  EXPECT_EQ(time.seconds, 4);
  EXPECT_EQ(time.exposed, 0.5);
  EXPECT_EQ(time.hidden(), 3.5);
}

TEST(AxisTimesTest, WaitsThatOverlapCountOnce) {
  const CommRecord record = Record(1, {{CommUse::kActivation, SpanKind::kBeside, 0, 10},
                                       {CommUse::kActivation, SpanKind::kWait, 1, 4},
                                       {CommUse::kActivation, SpanKind::kWait, 2, 5}});
  EXPECT_EQ(Of("pp", record).exposed, 4);
}

TEST(AxisTimesTest, AnInlineCallIsExposedAndExposesWhatRunsBesideIt) {
  const CommRecord record = Record(1, {{CommUse::kReduce, SpanKind::kInline, 0, 2},
                                       {CommUse::kReduce, SpanKind::kBeside, 1, 4}});
  const AxisTime time = Of("dp", record);
  EXPECT_EQ(time.seconds, 5);
  EXPECT_EQ(time.exposed, 3);
  EXPECT_EQ(time.hidden(), 2);
}

TEST(AxisTimesTest, AWaitForAnotherAxisHides) {
  const CommRecord record = Record(1, {{CommUse::kReduce, SpanKind::kBeside, 0, 4},
                                       {CommUse::kActivation, SpanKind::kWait, 0, 4},
                                       {CommUse::kWorld, SpanKind::kInline, 4, 5}});
  EXPECT_EQ(Of("dp", record).exposed, 0);
  EXPECT_EQ(Of("pp", record).seconds, 0) << "a wait is no call";
  EXPECT_EQ(Of("world", record).exposed, 1);
}

TEST(AxisTimesTest, WaitsOfOneUseExposeTheOthersOfItsAxis) {
  const CommRecord record = Record(1, {{CommUse::kTable, SpanKind::kInline, 0, 2},
                                       {CommUse::kActivation, SpanKind::kBeside, 1, 3}});
  const AxisTime time = Of("pp", record);
  EXPECT_EQ(time.calls, 2);
  EXPECT_EQ(time.seconds, 4);
  EXPECT_EQ(time.exposed, 3);
}

// The clock was full before the first of them: the others alone would look like all there is.
TEST(AxisTimesTest, CallsOfWhichNoneWasTimedAreNotLeftOut) {
  CommRecord record = Record(1, {{CommUse::kActivation, SpanKind::kBeside, 0, 1}});
  EXPECT_FALSE(AxisTimes(TraceOf(record)).empty());
  record.calls[static_cast<size_t>(CommUse::kReduce)] = 3;
  EXPECT_TRUE(AxisTimes(TraceOf(record)).empty());
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

// Two ranks that have calls of an axis and one that has none: the mean over two.
TEST(AxisTimesTest, OfAJobTheMeanOverTheRanksThatHaveCalls) {
  v1::JobTrace job;
  *job.add_ranks() = TraceOf(Record(1, {{CommUse::kReduce, SpanKind::kBeside, 0, 2}}), 0);
  *job.add_ranks() = TraceOf(Record(1, {{CommUse::kReduce, SpanKind::kInline, 0, 4}}), 1);
  *job.add_ranks() = TraceOf(Record(1, {}), 1);
  const std::vector<AxisTime> times = AxisTimes(job);
  ASSERT_EQ(times.size(), 4U);
  EXPECT_EQ(times[2].axis, "dp");
  EXPECT_EQ(times[2].calls, 1);
  EXPECT_EQ(times[2].seconds, 3);
  EXPECT_EQ(times[2].exposed, 2);
  EXPECT_EQ(times[0].seconds, 0);
}

const GroupTime& GroupIn(const std::vector<GroupTime>& times, const std::string& group) {
  static const GroupTime kNone;
  const auto found = std::ranges::find(times, group, &GroupTime::group);
  EXPECT_NE(found, times.end()) << group;
  return found == times.end() ? kNone : *found;
}

TEST(GroupTimesTest, GroupsOfOneAxisAreApart) {
  v1::JobTrace job;
  // A wait for sums does not expose a gather, nor what tensor ranks sum of partial gradients their
  // layers' calls.
  *job.add_ranks() = TraceOf(Record(2, {{CommUse::kReduce, SpanKind::kBeside, 0, 4},
                                        {CommUse::kReduce, SpanKind::kWait, 3, 5},
                                        {CommUse::kGather, SpanKind::kBeside, 0, 6},
                                        {CommUse::kLayer, SpanKind::kBeside, 6, 8},
                                        {CommUse::kPartial, SpanKind::kInline, 6, 9},
                                        {CommUse::kWorld, SpanKind::kInline, 9, 10}}));
  const std::vector<GroupTime> times = GroupTimes(job);
  std::vector<std::string> names;
  for (const GroupTime& time : times) names.push_back(time.group);
  EXPECT_EQ(names,
            (std::vector<std::string>{"tp", "tp-control", "dp-reduce", "dp-gather", "control"}));
  const GroupTime& reduce = GroupIn(times, "dp-reduce");
  EXPECT_EQ(reduce.axis, "dp");
  EXPECT_EQ(reduce.calls, 0.5) << "of a step";
  EXPECT_EQ(reduce.seconds, 2);
  EXPECT_EQ(reduce.exposed, 0.5);
  EXPECT_EQ(reduce.hidden(), 1.5);
  EXPECT_EQ(GroupIn(times, "dp-gather").exposed, 0);
  EXPECT_EQ(GroupIn(times, "tp").exposed, 0);
  EXPECT_EQ(GroupIn(times, "tp-control").exposed, 1.5);
}

// The first of two stages sends for 4 s; the second one waits for it during the last of them, and
// once more for what comes from elsewhere.
TEST(GroupTimesTest, ALinkIsExposedToItsReceiver) {
  v1::JobTrace job;
  *job.add_ranks() = TraceOf(Record(1, {{CommUse::kActivation, SpanKind::kBeside, 10, 14},
                                        {CommUse::kActivation, SpanKind::kWaitSent, 10, 10.5},
                                        {CommUse::kGradient, SpanKind::kWait, 11, 14}}),
                             0);
  *job.add_ranks() = TraceOf(Record(1, {{CommUse::kActivation, SpanKind::kWait, 13, 15},
                                        {CommUse::kGradient, SpanKind::kBeside, 20, 21}}),
                             1);
  const std::vector<GroupTime> times = GroupTimes(job);
  ASSERT_EQ(times.size(), 2U);
  const GroupTime& forth = GroupIn(times, "pp-act 0>1");
  EXPECT_EQ(forth.ranks, 1);
  EXPECT_EQ(forth.seconds, 4);
  EXPECT_EQ(forth.exposed, 1.5) << "of the receiver 1, of the sender 0.5";
  EXPECT_EQ(GroupIn(times, "pp-grad 1>0").exposed, 0);
}

TEST(GroupTimesTest, TheMostExposedRankIsNamed) {
  v1::JobTrace job;
  for (int rank = 0; rank < 2; ++rank) {
    *job.add_ranks() =
        TraceOf(Record(1, {{CommUse::kWorld, SpanKind::kInline, 0, 1.0 + rank}}), rank);
  }
  const std::vector<GroupTime> times = GroupTimes(job);
  const GroupTime& world = GroupIn(times, "control");
  EXPECT_EQ(world.ranks, 2);
  EXPECT_EQ(world.seconds, 1.5);
  EXPECT_EQ(world.most_exposed, 2);
  EXPECT_EQ(world.most_exposed_rank, 1);
}

// Two stages, four microbatches, 1F1B: (p - 1) of (m + p - 1) parts of the time a stage is idle,
// whatever forward and backward cost.
TEST(BubbleTest, IsTheSchedulesWithMeasuredTimes) {
  v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(
      "{name: g, model: {layers: 2, hidden_size: 16, heads: 2, seq_length: 16, vocab_size: 300}, "
      "data: {mock: true}, training: {micro_batch_size: 2, global_batch_size: 8, train_iters: 9}, "
      "parallel: {pipeline: 2}, optimizer: {lr: 1e-4}, placement: {device: cpu}}",
      {}, {}, &job);
  ASSERT_EQ(spec::FormatFaults(faults), "");
  ASSERT_EQ(spec::FormatFaults(spec::ResolveForSlots({}, &job)), "");
  v1::JobTrace trace;
  for (int rank = 0; rank < 2; ++rank) {
    v1::RankTrace& of = *trace.add_ranks();
    of.set_first_step(3);
    of.set_last_step(3);
    v1::TraceStream& stream = *of.add_streams();
    stream.set_kind(v1::TraceStream::COMPUTE);
    for (const char* label : {"forward", "backward", "pp_wait"}) stream.add_labels(label);
    for (uint32_t i = 0; i < 3; ++i) {
      stream.add_label(i);
      stream.add_gap_ns(0);
      stream.add_length_ns(4'000 * (i + 1));
      stream.add_step(0);
    }
  }
  EXPECT_NEAR(BubbleByFormula(job, trace), 1.0 / 5, 1e-9);
  EXPECT_EQ(BubbleByFormula(job, v1::JobTrace()), 0);
  job.mutable_parallel()->set_pipeline(1);
  EXPECT_EQ(BubbleByFormula(job, trace), 0);
}

}  // namespace
}  // namespace mt::bench