// Spans of a GPU's streams: against marks and the host's clock, over several streams with a wait in
// between, and what a recording leaves untimed.
#include "kernels/core/span_clock.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaSpanTest : public GpuTest {
 protected:
  Device& device() { return BackendOf(Side::kGpu).device(); }
  std::unique_ptr<SpanClock> Clock(int64_t capacity) {
    return device().CreateSpanClock(capacity, nullptr);
  }
  std::unique_ptr<Stream> NewStream() { return device().CreateStream(StreamPriority::kHigh); }
  // Work of some milliseconds: 1 GiB is read and written `times` times.
  void Work(Stream& stream, int times = 10) {
    if (buffer_ == nullptr) buffer_ = device().Allocate(kElements * 4, MemoryKind::kDevice);
    const Tensor x{buffer_->data(), DType::kF32, {kElements}};
    for (int i = 0; i < times; ++i) BackendOf(Side::kGpu).vector().Fill(stream, x, 1);
  }
  static void Time(SpanClock& spans, Stream& stream, int label,
                   const std::function<void()>& calls) {
    const std::optional<SpanClock::Ticket> ticket = spans.Begin(stream, label);
    calls();
    EXPECT_TRUE(ticket.has_value());
    spans.End(stream, ticket.value_or(0));
  }
  // What the stream is given from now on waits for Open.
  void Close(Stream& stream) {
    gate_ = device().Allocate(sizeof(uint32_t), MemoryKind::kPinnedHost);
    std::atomic_ref<uint32_t>(Word()).store(0);
    stream.WaitValue(&Word(), 1);
  }
  static void AwaitForAWhile(Event& event) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!event.IsDone() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  }
  void Open() { std::atomic_ref<uint32_t>(Word()).store(1); }
  static double Length(const SpanClock::Span& span) { return span.end - span.begin; }

  static constexpr int64_t kElements = int64_t{256} << 20;
  uint32_t& Word() { return *static_cast<uint32_t*>(gate_->data()); }

  std::unique_ptr<DeviceBuffer> buffer_, gate_;
};

TEST_F(CudaSpanTest, SpansAgreeWithMarksAndLieWithinTheHostsTime) {
  const auto stream = NewStream();
  const auto spans = Clock(4);
  const auto ring = device().CreateMarkRing(8, nullptr);
  Work(*stream, 1);
  stream->Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  Time(*spans, *stream, 3, [&] {
    ring->Mark(*stream);
    Work(*stream);
    ring->Mark(*stream);
  });
  Time(*spans, *stream, 4, [] {});
  const std::vector<SpanClock::Span> read = spans->Read();  // waits
  const std::chrono::duration<double> host = std::chrono::steady_clock::now() - begin;
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].label, 3);
  EXPECT_EQ(read[1].label, 4);
  const double marked =
      1e-9 * static_cast<double>(ring->TimeOf(2).value_or(0) - ring->TimeOf(1).value_or(0));
  EXPECT_GT(marked, 1e-3);
  EXPECT_GT(Length(read[0]), marked - 1e-5);
  EXPECT_LT(Length(read[0]), host.count());
  EXPECT_GE(read[1].begin, read[0].end - 1e-6);
  EXPECT_LT(Length(read[1]), 0.5 * Length(read[0]));
}

// The wait of one stream for another one's work, as a benchmark times it.
TEST_F(CudaSpanTest, AWaitLastsAsLongAsWhatItWaitsFor) {
  const auto compute = NewStream(), beside = NewStream();
  const auto spans = Clock(8);
  const auto event = device().CreateEvent(), begun = device().CreateEvent();
  Work(*beside, 1);
  beside->Synchronize();
  Close(*beside);
  Time(*spans, *beside, 1, [&] { Work(*beside); });
  event->Record(*beside);
  Time(*spans, *compute, 2, [&] {
    begun->Record(*compute);
    compute->Wait(*event);
  });
  AwaitForAWhile(*begun);
  const auto before = std::chrono::steady_clock::now();
  Open();
  const std::vector<SpanClock::Span> read = spans->Read();
  const std::chrono::duration<double> host = std::chrono::steady_clock::now() - before;
  ASSERT_EQ(read.size(), 2U);
  EXPECT_LT(Length(read[0]), host.count()) << "the work does not count from when it was enqueued";
  EXPECT_LT(read[1].begin, read[0].begin);
  EXPECT_GE(read[1].end, read[0].end - 1e-6);
  EXPECT_GT(Length(read[1]), Length(read[0]));
}

// The base of all times does not hang on the stream that is timed first.
TEST_F(CudaSpanTest, TheFirstSpanMayBePassedLast) {
  const auto late = NewStream(), early = NewStream();
  const auto spans = Clock(8);
  const auto passed = device().CreateEvent();
  Close(*late);
  Time(*spans, *late, 1, [] {});
  Time(*spans, *early, 2, [] {});
  passed->Record(*early);
  AwaitForAWhile(*passed);
  Open();
  const std::vector<SpanClock::Span> read = spans->Read();
  ASSERT_EQ(read.size(), 2U);
  EXPECT_LT(read[1].end, read[0].begin);
  EXPECT_GE(Length(read[1]), 0);
}

TEST_F(CudaSpanTest, ARecordingIsNotTimedAndRunsAsEver) {
  const auto stream = NewStream();
  const auto spans = Clock(8);
  Work(*stream, 1);
  stream->Synchronize();
  std::optional<SpanClock::Ticket> within;
  std::string why_not;
  const auto recording = device().Record(
      *stream,
      [&] {
        within = spans->Begin(*stream, 1);
        Work(*stream, 3);
      },
      &why_not);
  ASSERT_NE(recording, nullptr) << why_not;
  EXPECT_FALSE(within.has_value());
  Time(*spans, *stream, 2, [&] { recording->Launch(*stream); });
  Time(*spans, *stream, 3, [&] { recording->Launch(*stream); });
  const std::vector<SpanClock::Span> read = spans->Read();
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].label, 2);
  EXPECT_GT(Length(read[0]), 3e-4) << "3 GiB take longer";
  EXPECT_GT(Length(read[1]), 3e-4);
}

}  // namespace
}  // namespace mt::kernels::cuda
