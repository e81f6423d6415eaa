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
  void Wait(CommUse use) {
    EXPECT_TRUE(TimeWait(&spans_, *stream_, use, [this] { return Pass(); }).ok());
  }
  // Spans of the use and kind.
  int64_t Timed(CommUse use, SpanKind kind) {
    int64_t count = 0;
    for (const CommSpan& span : spans_.Read().spans) {
      if (span.use != use || span.kind != kind) continue;
      ++count;
      EXPECT_NEAR(span.end - span.begin, 0.001, 1e-9);
    }
    return count;
  }
  int64_t Calls(CommUse use) { return spans_.Read().calls.at(static_cast<size_t>(use)); }

  base::ManualClock clock_;
  std::unique_ptr<kernels::Backend> cpu_ = kernels::cpu::MakeCpuBackend({}).value();
  std::unique_ptr<kernels::Stream> stream_ =
      cpu_->device().CreateStream(kernels::StreamPriority::kLow);
  CommSpans spans_{cpu_->device().CreateSpanClock(1'000, &clock_), kFirst, kLast};
};

TEST_F(CommSpansTest, OneCallInSoManyIsTimedAndAllAreCounted) {
  spans_.BeginStep(kFirst);
  Call(CommUse::kLayer, 35);
  Call(CommUse::kParcel, 11);
  Call(CommUse::kReplicas, 4);
  EXPECT_EQ(Timed(CommUse::kLayer, SpanKind::kBeside), 3);
  EXPECT_EQ(Timed(CommUse::kParcel, SpanKind::kBeside), 3);
  EXPECT_EQ(Timed(CommUse::kReplicas, SpanKind::kBeside), 4);
  EXPECT_EQ(Calls(CommUse::kLayer), 35);
  EXPECT_EQ(Calls(CommUse::kParcel), 11);
  EXPECT_EQ(Calls(CommUse::kReplicas), 4);
  spans_.BeginStep(kLast);  // goes on where the step before has ended
  Call(CommUse::kLayer, 16);
  EXPECT_EQ(Timed(CommUse::kLayer, SpanKind::kBeside), 3);
  Call(CommUse::kLayer);
  EXPECT_EQ(Timed(CommUse::kLayer, SpanKind::kBeside), 4);
}

TEST_F(CommSpansTest, CallsOfTheStepsAndWaitsOfOneMore) {
  Call(CommUse::kReplicas);
  Wait(CommUse::kReplicas);
  for (int64_t step = 1; step <= 7; ++step) {
    spans_.BeginStep(step);
    Call(CommUse::kReplicas);
    Wait(CommUse::kReplicas);
  }
  EXPECT_EQ(Calls(CommUse::kReplicas), 2);
  EXPECT_EQ(Timed(CommUse::kReplicas, SpanKind::kBeside), 2);
  EXPECT_EQ(Timed(CommUse::kReplicas, SpanKind::kWait), 3);
  EXPECT_EQ(spans_.Read().steps, 2);
}

TEST_F(CommSpansTest, UsesAndKindsComeBackAsTheyWere) {
  spans_.BeginStep(kFirst);
  for (size_t use = 0; use < kCommUses.size(); ++use) {
    for (const SpanKind kind : {SpanKind::kBeside, SpanKind::kInline, SpanKind::kWait}) {
      EXPECT_TRUE(TimeSpan(&spans_, *stream_, static_cast<CommUse>(use), kind, [this] {
                    return Pass();
                  }).ok());
    }
  }
  for (size_t use = 0; use < kCommUses.size(); ++use) {
    for (const SpanKind kind : {SpanKind::kBeside, SpanKind::kInline, SpanKind::kWait})
      EXPECT_EQ(Timed(static_cast<CommUse>(use), kind), 1) << use;
  }
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
