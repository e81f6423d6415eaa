// Which calls and waits of communication are timed: the steps, one call in so many, and none that
// fails.
#include "worker/parallel/comm_spans.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "kernels/cpu/cpu_backend.h"

namespace mt::parallel {
namespace {

class CommSpansTest : public ::testing::Test {
 protected:
  static constexpr int64_t kFirst = 3, kLast = 4;

  Status Pass(Status result = OkStatus()) {
    clock_.Advance(std::chrono::milliseconds(1));
    return result;
  }
  void Call(CommUse use, int times = 1) {
    for (int i = 0; i < times; ++i) {
      EXPECT_TRUE(
          TimeCall(&spans_, *stream_, use, SpanKind::kBeside, [this] { return Pass(); }).ok());
    }
  }
  void Wait(CommUse use, SpanKind kind = SpanKind::kWait) {
    EXPECT_TRUE(TimeWait(
                    &spans_, *stream_, use, [this] { return Pass(); }, kind)
                    .ok());
  }
  void Restart(CommSpans::Steps steps, int64_t capacity = 1'000) {
    spans_.Start(cpu_->device().CreateSpanClock(capacity, &clock_), steps);
  }
  // Spans of the use and kind.
  static int64_t Timed(const CommRecord& record, CommUse use, SpanKind kind) {
    int64_t count = 0;
    for (const CommSpan& span : record.spans) {
      if (span.use != use || span.kind != kind) continue;
      ++count;
      EXPECT_NEAR(span.end - span.begin, 0.001, 1e-9);
    }
    return count;
  }
  static int64_t Calls(const CommRecord& record, CommUse use) {
    return record.calls.at(static_cast<size_t>(use));
  }

  base::ManualClock clock_;
  std::unique_ptr<kernels::Backend> cpu_ = kernels::cpu::MakeCpuBackend({}).value();
  std::unique_ptr<kernels::Stream> stream_ =
      cpu_->device().CreateStream(kernels::StreamPriority::kLow);
  CommSpans spans_{cpu_->device().CreateSpanClock(1'000, &clock_),
                   {.first = kFirst, .last = kLast}};
};

TEST_F(CommSpansTest, OneCallInSoManyIsTimedAndAllAreCounted) {
  spans_.BeginStep(kFirst);
  Call(CommUse::kLayer, 35);
  Call(CommUse::kActivation, 11);
  Call(CommUse::kReduce, 4);
  spans_.BeginStep(kLast);  // goes on where the step before has ended
  Call(CommUse::kLayer, 17);
  const CommRecord record = spans_.Read();
  EXPECT_EQ(Timed(record, CommUse::kLayer, SpanKind::kBeside), 4) << "1, 18, 35 and 52";
  EXPECT_EQ(Timed(record, CommUse::kActivation, SpanKind::kBeside), 3);
  EXPECT_EQ(Timed(record, CommUse::kReduce, SpanKind::kBeside), 4);
  EXPECT_EQ(Calls(record, CommUse::kLayer), 52);
  EXPECT_EQ(Calls(record, CommUse::kActivation), 11);
  EXPECT_EQ(Calls(record, CommUse::kReduce), 4);
  EXPECT_EQ(record.dropped, 0);
}

TEST_F(CommSpansTest, ATraceTimesEveryCall) {
  (void)spans_.Read();
  Restart({.first = 5, .last = 5, .every_call = true});
  spans_.BeginStep(5);
  Call(CommUse::kLayer, 35);
  Call(CommUse::kActivation, 11);
  const CommRecord record = spans_.Read();
  EXPECT_EQ(Timed(record, CommUse::kLayer, SpanKind::kBeside), 35);
  EXPECT_EQ(Timed(record, CommUse::kActivation, SpanKind::kBeside), 11);
}

// As a running job has it: idle, then timed, then idle again, then timed anew.
TEST_F(CommSpansTest, StepsAreTimedAgainAfterARead) {
  spans_.BeginStep(kFirst);
  Call(CommUse::kReduce);
  EXPECT_FALSE(spans_.idle());
  EXPECT_EQ(spans_.Read().spans.size(), 1U);
  EXPECT_TRUE(spans_.idle());
  spans_.BeginStep(kLast);
  Call(CommUse::kReduce, 3);
  Wait(CommUse::kReduce);
  const CommRecord idle = spans_.Read();
  EXPECT_TRUE(idle.spans.empty());
  EXPECT_EQ(idle.steps, 0);
  Restart({.first = 7, .last = 7});
  spans_.BeginStep(7);
  EXPECT_EQ(spans_.calls_of_a_step(), 4) << "what an idle one counts";
  Call(CommUse::kReduce, 2);
  const CommRecord record = spans_.Read();
  EXPECT_EQ(record.steps, 1);
  EXPECT_EQ(Calls(record, CommUse::kReduce), 2);
  ASSERT_EQ(record.spans.size(), 2U);
  EXPECT_EQ(record.spans[0].step, 7);
}

TEST_F(CommSpansTest, EndsOfStepsAndWhatFoundNoRoom) {
  (void)spans_.Read();
  Restart({.first = 5, .last = 6, .every_call = true}, /*capacity=*/4);
  for (int64_t step = 4; step <= 7; ++step) {
    spans_.BeginStep(step);
    Call(CommUse::kReduce);
    spans_.EndStep(*stream_);
  }
  Wait(CommUse::kReduce);
  const CommRecord record = spans_.Read();
  ASSERT_EQ(record.ends.size(), 2U);
  EXPECT_EQ(record.ends[0].step, 5);
  EXPECT_EQ(record.ends[1].step, 6);
  EXPECT_NEAR(record.ends[1].at - record.ends[0].at, 0.001, 1e-9);
  EXPECT_EQ(record.spans.size(), 2U);
  EXPECT_EQ(record.dropped, 1) << "the wait of the step behind";
}

// Without them a trace could not tell when its spans were.
TEST_F(CommSpansTest, EndsOfStepsFindRoomBesideAnyNumberOfCalls) {
  (void)spans_.Read();
  Restart({.first = 5, .last = 6, .every_call = true, .most_spans = 2}, /*capacity=*/4);
  for (int64_t step = 5; step <= 6; ++step) {
    spans_.BeginStep(step);
    Call(CommUse::kReduce, 3);
    spans_.EndStep(*stream_);
  }
  const CommRecord record = spans_.Read();
  ASSERT_EQ(record.ends.size(), 2U);
  EXPECT_EQ(record.ends[1].step, 6);
  EXPECT_EQ(record.spans.size(), 2U);
  EXPECT_EQ(record.dropped, 4);
  EXPECT_EQ(Calls(record, CommUse::kReduce), 6);
  Restart({.first = 8, .last = 8, .every_call = true, .most_spans = 2});
  spans_.BeginStep(8);
  Call(CommUse::kReduce, 2);
  EXPECT_EQ(spans_.Read().dropped, 0) << "each has its own room";
}

TEST_F(CommSpansTest, CallsOfTheStepsAndWaitsOfOneMore) {
  Call(CommUse::kReduce);
  Wait(CommUse::kReduce);
  for (int64_t step = 1; step <= 7; ++step) {
    spans_.BeginStep(step);
    Call(CommUse::kReduce);
    Wait(CommUse::kReduce);
  }
  const CommRecord record = spans_.Read();
  EXPECT_EQ(Calls(record, CommUse::kReduce), 2);
  EXPECT_EQ(Timed(record, CommUse::kReduce, SpanKind::kBeside), 2);
  EXPECT_EQ(Timed(record, CommUse::kReduce, SpanKind::kWait), 3);
  EXPECT_EQ(record.steps, 2);
}

TEST_F(CommSpansTest, UsesAndKindsComeBackAsTheyWere) {
  constexpr SpanKind kAll[] = {SpanKind::kBeside, SpanKind::kInline, SpanKind::kWait,
                               SpanKind::kWaitSent};
  spans_.BeginStep(kLast);
  for (size_t use = 0; use < kCommUses.size(); ++use) {
    for (const SpanKind kind : kAll) {
      EXPECT_TRUE(TimeSpan(&spans_, *stream_, static_cast<CommUse>(use), kind, [this] {
                    return Pass();
                  }).ok());
    }
  }
  const CommRecord record = spans_.Read();
  for (size_t use = 0; use < kCommUses.size(); ++use) {
    for (const SpanKind kind : kAll)
      EXPECT_EQ(Timed(record, static_cast<CommUse>(use), kind), 1) << use;
  }
  for (const CommSpan& span : record.spans) EXPECT_EQ(span.step, kLast);
}

TEST_F(CommSpansTest, AFailedCallHasNoSpan) {
  spans_.BeginStep(kFirst);
  const Status failed = TimeCall(&spans_, *stream_, CommUse::kWorld, SpanKind::kInline,
                                 [this] { return Pass(base::Unavailable("no peer")); });
  EXPECT_EQ(failed.message(), "no peer");
  EXPECT_TRUE(spans_.Read().spans.empty());
}

TEST_F(CommSpansTest, WithoutAnybodyWhoTimesCallsRun) {
  int ran = 0;
  const auto call = [&] {
    ++ran;
    return OkStatus();
  };
  EXPECT_TRUE(TimeCall(nullptr, *stream_, CommUse::kLayer, SpanKind::kInline, call).ok());
  EXPECT_TRUE(TimeWait(nullptr, *stream_, CommUse::kLayer, call).ok());
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace mt::parallel
