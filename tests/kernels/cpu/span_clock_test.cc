// Spans of the CPU backend: their times, order and labels, what is not read, a full clock, and
// several threads.
#include "kernels/core/span_clock.h"

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "kernels/cpu/cpu_backend.h"

namespace mt::kernels {
namespace {

class SpanClockTest : public ::testing::Test {
 protected:
  std::unique_ptr<SpanClock> Clock(int64_t capacity) {
    return backend_->device().CreateSpanClock(capacity, &clock_);
  }
  // Of a clock that is not full.
  static SpanClock::Ticket Begin(SpanClock& spans, Stream& stream, int label) {
    const std::optional<SpanClock::Ticket> ticket = spans.Begin(stream, label);
    EXPECT_TRUE(ticket.has_value());
    return ticket.value_or(0);
  }
  void Pass(int milliseconds) { clock_.Advance(std::chrono::milliseconds(milliseconds)); }

  base::ManualClock clock_;
  std::unique_ptr<Backend> backend_ = cpu::MakeCpuBackend({.num_threads = 1}).value();
  std::unique_ptr<Stream> stream_ = backend_->device().CreateStream(StreamPriority::kLow);
};

TEST_F(SpanClockTest, SpansOfStreamsShareATimeBase) {
  const auto spans = Clock(4);
  const auto other = backend_->device().CreateStream(StreamPriority::kHigh);
  const SpanClock::Ticket first = Begin(*spans, *stream_, 7);
  Pass(2);
  const SpanClock::Ticket second = Begin(*spans, *other, 8);
  Pass(3);
  spans->End(*stream_, first);
  Pass(5);
  spans->End(*other, second);
  const std::vector<SpanClock::Span> read = spans->Read();
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].label, 7);
  EXPECT_EQ(read[1].label, 8);
  EXPECT_NEAR(read[0].end - read[0].begin, 0.005, 1e-9);
  EXPECT_NEAR(read[1].begin - read[0].begin, 0.002, 1e-9);
  EXPECT_NEAR(read[1].end - read[0].begin, 0.010, 1e-9);
}

TEST_F(SpanClockTest, WhatHasNotEndedIsNotRead) {
  const auto spans = Clock(4);
  const SpanClock::Ticket open = Begin(*spans, *stream_, 1);
  const SpanClock::Ticket over = Begin(*spans, *stream_, 2);
  spans->End(*stream_, over);
  ASSERT_EQ(spans->Read().size(), 1U);
  EXPECT_EQ(spans->Read()[0].label, 2);
  spans->End(*stream_, open);
  ASSERT_EQ(spans->Read().size(), 2U);
  EXPECT_EQ(spans->Read()[0].label, 1) << "in the order of their beginnings";
}

TEST_F(SpanClockTest, AFullClockTimesNothingMore) {
  const auto spans = Clock(2);
  for (int label = 0; label < 2; ++label) {
    const SpanClock::Ticket ticket = Begin(*spans, *stream_, label);
    Pass(1);
    spans->End(*stream_, ticket);
  }
  EXPECT_FALSE(spans->Begin(*stream_, 2).has_value());
  const std::vector<SpanClock::Span> read = spans->Read();
  ASSERT_EQ(read.size(), 2U);
  for (const SpanClock::Span& span : read) EXPECT_NEAR(span.end - span.begin, 0.001, 1e-9);
}

TEST_F(SpanClockTest, ThreadsTimeTheirOwnStreams) {
  constexpr int kThreads = 4, kSpans = 500;
  const auto spans = Clock(int64_t{kThreads} * kSpans);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto own = backend_->device().CreateStream(StreamPriority::kLow);
      for (int i = 0; i < kSpans; ++i) {
        const SpanClock::Ticket ticket = Begin(*spans, *own, t);
        Pass(1);
        spans->End(*own, ticket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::array<int, kThreads> of_thread{};
  for (const SpanClock::Span& span : spans->Read()) {
    ++of_thread.at(static_cast<size_t>(span.label));
    EXPECT_GE(span.end - span.begin, 0.001 - 1e-9);
  }
  for (const int count : of_thread) EXPECT_EQ(count, kSpans);
}

}  // namespace
}  // namespace mt::kernels
