// When a device may have had nothing enqueued, on a device that runs its calls when the test says
// so: none of it where the host is ahead, all of it where it is late.
#include "worker/trace/step_tracer.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/report/trace_stream.h"
#include "megatrain/v1/trace.pb.h"
#include "tests/worker/engine/scripted_device.h"

namespace mt::trace {
namespace {

namespace v1 = megatrain::v1;
using report::StepPhase;
using std::chrono::milliseconds;

TEST(SpanCapacityTest, IsWhatTheStepsTakeAndLimitedOverAllRanks) {
  const TraceSteps steps{.first = 4, .last = 6};
  EXPECT_EQ(SpanCapacity(steps, 10'000, 8), 4 * 10'000 * 3 / 2);
  EXPECT_EQ(SpanCapacity(steps, 1'000'000, 16), 262'144);
  EXPECT_EQ(SpanCapacity(steps, 1'000'000, 64), 65'536);
  EXPECT_EQ(SpanCapacity(steps, 1'000'000, 1'024), 16'384);
  EXPECT_EQ(SpanCapacity(steps, 1, 8), 16'384);
  EXPECT_EQ(SpanCapacity(steps, 0, 8), 65'536) << "nothing has told what a step has";
  EXPECT_EQ(SpanCapacity(steps, 0, 128), 32'768);
  EXPECT_EQ(SpanCapacity({.first = 4, .last = 8, .every_call = false}, 10'000, 8), 16'384);
}

class StepTracerTest : public ::testing::Test {
 protected:
  void Work(int ms) {
    device_.Enqueue([this, ms] { clock_.Advance(milliseconds(ms)); });
  }
  void Begin(int64_t step) {
    phases_.SetStep(step);
    phases_.SetAction(/*microbatch=*/1, /*chunk=*/0);
    phases_.Switch(StepPhase::kForward);
  }
  void Rest(int64_t step) {
    phases_.Switch(StepPhase::kBackward);
    Work(8);
    phases_.EndStep(step);
  }
  std::vector<report::TraceSpan> Starved(int64_t last) {
    device_.RunAll();
    v1::RankTrace trace;
    tracer_.Finish(last, &trace);
    for (const v1::TraceStream& stream : trace.streams()) {
      if (stream.kind() == v1::TraceStream::STARVED) return report::SpansOf(trace, stream);
    }
    ADD_FAILURE() << "no such stream";
    return {};
  }

  base::ManualClock clock_;
  train::ScriptedDevice device_;
  std::unique_ptr<kernels::Stream> stream_ = device_.CreateStream(kernels::StreamPriority::kLow);
  engine::PhaseClock phases_{&device_, stream_.get(), &clock_};
  parallel::CommSpans spans_;
  const layout::GroupAxes axes_{layout::Mesh::Create({}).value(), 0, /*tied_tables=*/false};
  StepTracer tracer_{
      {.device = &device_, .spans = &spans_, .phases = &phases_, .axes = &axes_, .clock = &clock_}};
};

TEST_F(StepTracerTest, AHostThatIsAheadKeepsNobodyWaiting) {
  tracer_.Start({.first = 1, .last = 2});
  for (int64_t step = 1; step <= 2; ++step) {
    Begin(step);
    Work(5);
    Rest(step);
  }
  clock_.Advance(milliseconds(3));
  EXPECT_TRUE(Starved(2).empty());
}

// The device runs out of work within a forward; what it still had to do then counts as well, since
// only the phase's end tells that nothing is lacking.
TEST_F(StepTracerTest, APhaseIsStarvedUntilTheHostHasEnqueuedItsEnd) {
  tracer_.Start({.first = 1, .last = 2});
  Begin(1);
  Work(5);
  Rest(1);
  device_.RunAll();
  Begin(2);
  Work(5);
  device_.RunAll();
  clock_.Advance(milliseconds(10));
  Rest(2);
  const std::vector<report::TraceSpan> starved = Starved(2);
  ASSERT_EQ(starved.size(), 1U);
  EXPECT_EQ(starved[0].label, "forward");
  EXPECT_EQ(starved[0].step, 2);
  EXPECT_EQ(starved[0].microbatch, 1);
  EXPECT_EQ(starved[0].end - starved[0].begin, 15'000'000);
}

// The rest of the phase is work that was there.
TEST_F(StepTracerTest, AHostThatCatchesUpWithinAPhaseKeepsNobodyWaitingFromThenOn) {
  tracer_.Start({.first = 1, .last = 1});
  Begin(1);
  device_.RunAll();
  clock_.Advance(milliseconds(2));  // the host enqueues the forward
  Work(20);
  Rest(1);
  const std::vector<report::TraceSpan> starved = Starved(1);
  ASSERT_EQ(starved.size(), 1U);
  EXPECT_EQ(starved[0].end - starved[0].begin, 2'000'000);
}

// Between steps the device waits in the step that comes late.
TEST_F(StepTracerTest, AStepThatComesLateIsStarvedFromItsBegin) {
  tracer_.Start({.first = 1, .last = 2});
  for (int64_t step = 1; step <= 2; ++step) {
    Begin(step);
    Work(5);
    Rest(step);
    device_.RunAll();
    if (step == 1) clock_.Advance(milliseconds(4));
  }
  const std::vector<report::TraceSpan> starved = Starved(2);
  ASSERT_EQ(starved.size(), 1U);
  EXPECT_EQ(starved[0].label, "other");
  EXPECT_EQ(starved[0].step, 2);
  EXPECT_EQ(starved[0].end - starved[0].begin, 4'000'000);
}

// A save, say: what the host does between steps keeps no step waiting.
TEST_F(StepTracerTest, WhatLiesBetweenStepsIsNotStarved) {
  tracer_.Start({.first = 1, .last = 2});
  Begin(1);
  Work(5);
  Rest(1);
  device_.RunAll();
  clock_.Advance(milliseconds(4));
  phases_.EndBetween();
  device_.RunAll();
  Begin(2);
  Work(5);
  Rest(2);
  EXPECT_TRUE(Starved(2).empty());
}

}  // namespace
}  // namespace mt::trace
