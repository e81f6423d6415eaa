// How much of a step a device waits for its host at most: added up from made-up traces.
#include "worker/bench/host_wait.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/report/trace_stream.h"
#include "megatrain/v1/trace.pb.h"

namespace mt::bench {
namespace {

namespace v1 = megatrain::v1;
using report::TraceSpan;

constexpr int64_t kFirstStep = 11;

void AddSpans(v1::TraceStream::Kind kind, std::vector<TraceSpan> spans, v1::RankTrace* out) {
  v1::TraceStream* const stream = out->add_streams();
  stream->set_kind(kind);
  report::WriteSpans(std::move(spans), kFirstStep, /*placed=*/false, /*slack_ns=*/0, stream);
}

// Three steps of 100 ns each, and 40 ns between the last two. `starved` as spans of them.
v1::RankTrace ThreeSteps(int rank, std::vector<TraceSpan> starved) {
  v1::RankTrace trace;
  trace.set_rank(rank);
  trace.set_first_step(kFirstStep);
  trace.set_last_step(kFirstStep + 2);
  AddSpans(v1::TraceStream::COMPUTE,
           {{.label = "forward", .begin = 0, .end = 100, .step = kFirstStep},
            {.label = "forward", .begin = 100, .end = 150, .step = kFirstStep + 1},
            {.label = "pp_wait", .begin = 150, .end = 200, .step = kFirstStep + 1},
            {.label = "other, between steps", .begin = 200, .end = 240, .step = kFirstStep + 1},
            {.label = "forward", .begin = 240, .end = 340, .step = kFirstStep + 2}},
           &trace);
  AddSpans(v1::TraceStream::STARVED, std::move(starved), &trace);
  return trace;
}

TEST(HostWait, IsTheLargestShareOfAnyRankWithoutTheFirstStep) {
  v1::JobTrace job;
  *job.add_ranks() =
      ThreeSteps(0, {{.label = "forward", .begin = 0, .end = 100, .step = kFirstStep}});
  std::optional<HostWait> wait = LargestHostWait(job);
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->share, 0) << "the trace had stopped the device";
  EXPECT_EQ(wait->rank, 0);
  *job.add_ranks() =
      ThreeSteps(1, {{.label = "forward", .begin = 100, .end = 110, .step = kFirstStep + 1},
                     {.label = "forward", .begin = 240, .end = 260, .step = kFirstStep + 2}});
  *job.add_ranks() =
      ThreeSteps(2, {{.label = "forward", .begin = 100, .end = 101, .step = kFirstStep + 1}});
  wait = LargestHostWait(job);
  ASSERT_TRUE(wait.has_value());
  EXPECT_DOUBLE_EQ(wait->share, 30.0 / 200);
  EXPECT_EQ(wait->rank, 1);
}

TEST(HostWait, IsUnknownWhereNothingTellsIt) {
  v1::JobTrace job;
  EXPECT_FALSE(LargestHostWait(job).has_value()) << "no trace";
  *job.add_ranks() = ThreeSteps(0, {});
  EXPECT_TRUE(LargestHostWait(job).has_value());
  v1::JobTrace blocking = job;
  blocking.mutable_ranks(0)->mutable_streams()->RemoveLast();
  EXPECT_FALSE(LargestHostWait(blocking).has_value()) << "a device whose calls block";
  v1::JobTrace one = job;
  one.mutable_ranks(0)->set_last_step(kFirstStep);
  EXPECT_FALSE(LargestHostWait(one).has_value()) << "the first step alone";
}

}  // namespace
}  // namespace mt::bench
