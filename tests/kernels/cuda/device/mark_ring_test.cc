// Marks and recordings (CUDA graphs) of a GPU: order, clock, wrap-around, marks inside recordings
// while these run and when they are replayed, and calls that cannot be recorded.
#include "kernels/core/mark_ring.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaMarkTest : public GpuTest {
 protected:
  Device& device() { return BackendOf(Side::kGpu).device(); }
  Stream& stream() { return StreamOf(Side::kGpu); }
  std::unique_ptr<MarkRing> Ring(int64_t capacity) {
    return device().CreateMarkRing(capacity, nullptr);
  }
  // A vector of ones on the GPU.
  Tensor Ones(int64_t elements) {
    buffer_ = device().Allocate(elements * 4, MemoryKind::kDevice);
    const Tensor x{buffer_->data(), DType::kF32, {elements}};
    BackendOf(Side::kGpu).vector().Fill(stream(), x, 1);
    return x;
  }
  void Double(const Tensor& x) { BackendOf(Side::kGpu).vector().AddTo(stream(), x, x); }
  float First(const Tensor& x) {
    float value = 0;
    device().Copy(stream(), &value, x.data, sizeof(value));
    stream().Synchronize();
    return value;
  }
  std::unique_ptr<Recording> Record(const std::function<void()>& calls) {
    std::string why_not;
    auto recording = device().Record(stream(), calls, &why_not);
    EXPECT_NE(recording, nullptr) << why_not;
    return recording;
  }

  std::unique_ptr<DeviceBuffer> buffer_;
};

TEST_F(CudaMarkTest, MarksTellTheDevicesTimeInOrder) {
  const auto ring = Ring(100);
  EXPECT_GE(ring->capacity(), 100);
  EXPECT_EQ(ring->Newest(), 0);
  const Tensor x = Ones(int64_t{256} << 20);  // 1 GiB: 3 GB through memory take 0.6 ms and more
  stream().Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  ring->Mark(stream());
  for (int i = 0; i < 10; ++i) Double(x);
  ring->Mark(stream());
  ring->Mark(stream());
  stream().Synchronize();
  const std::chrono::nanoseconds host = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(ring->Newest(), 3);
  EXPECT_FALSE(ring->TimeOf(4).has_value());
  const int64_t work = *ring->TimeOf(2) - *ring->TimeOf(1);
  const int64_t nothing = *ring->TimeOf(3) - *ring->TimeOf(2);
  EXPECT_GT(work, 2'000'000) << "nanoseconds";
  EXPECT_LT(work, host.count()) << "the device's clock counts nanoseconds, too";
  EXPECT_GE(nothing, 0);
  EXPECT_LT(nothing, work / 4);
}

TEST_F(CudaMarkTest, ARingGoesAroundAndKeepsTheNewest) {
  const auto ring = Ring(8);
  for (int i = 0; i < 1'001; ++i) ring->Mark(stream());
  stream().Synchronize();
  EXPECT_EQ(ring->Newest(), 1'001);
  for (int64_t n = 1'001 - 7; n < 1'001; ++n) {
    ASSERT_TRUE(ring->TimeOf(n).has_value()) << n;
    EXPECT_LE(*ring->TimeOf(n), *ring->TimeOf(n + 1));
  }
  EXPECT_FALSE(ring->TimeOf(1'001 - 8).has_value());
}

TEST_F(CudaMarkTest, MarksInsideARecordingCountInEveryLaunch) {
  const auto ring = Ring(1 << 10);
  const Tensor x = Ones(1'000);
  const auto recording = Record([&] {
    ring->Mark(stream());
    Double(x);
    ring->Mark(stream());
  });
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(First(x), 1.0F) << "recording runs nothing";
  EXPECT_EQ(ring->Newest(), 0);
  constexpr int kLaunches = 20;
  for (int i = 0; i < kLaunches; ++i) {
    recording->Launch(stream());
    ring->Mark(stream());  // eager ones in between
  }
  EXPECT_EQ(First(x), static_cast<float>(1 << kLaunches));
  EXPECT_EQ(ring->Newest(), 3 * kLaunches);
  for (int64_t n = 1; n < 3 * kLaunches; ++n) EXPECT_LE(*ring->TimeOf(n), *ring->TimeOf(n + 1));
}

TEST_F(CudaMarkTest, MarksAreSeenWhileTheirRecordingStillRuns) {
  const auto ring = Ring(64);
  const Tensor x = Ones(int64_t{256} << 20);
  const auto done = device().CreateEvent();
  const auto recording = Record([&] {
    ring->Mark(stream());
    for (int i = 0; i < 50; ++i) Double(x);  // 30 ms and more
    ring->Mark(stream());
  });
  ASSERT_NE(recording, nullptr);
  stream().Synchronize();
  recording->Launch(stream());
  done->Record(stream());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (ring->Newest() == 0 && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_EQ(ring->Newest(), 1);
  EXPECT_FALSE(done->IsDone());
  done->Synchronize();
  EXPECT_EQ(ring->Newest(), 2);
}

TEST_F(CudaMarkTest, ACallThatWaitsForTheHostCannotBeRecorded) {
  const Tensor x = Ones(1'000);
  std::string why_not;
  const auto waits = [&] {
    Double(x);
    stream().Synchronize();
  };
  EXPECT_EQ(device().Record(stream(), waits, &why_not), nullptr);
  EXPECT_NE(why_not.find("captur"), std::string::npos) << why_not;
  Double(x);
  EXPECT_EQ(First(x), 2.0F) << "nothing of the recording ran, and the stream is as before";
  const auto recording = Record([&] { Double(x); });
  ASSERT_NE(recording, nullptr);
  recording->Launch(stream());
  EXPECT_EQ(First(x), 4.0F);
}

TEST_F(CudaMarkTest, AnEventFromOutsideCannotBeWaitedForInARecording) {
  const Tensor x = Ones(1'000);
  const auto other = device().CreateStream(StreamPriority::kHigh);
  const auto event = device().CreateEvent();
  event->Record(*other);
  std::string why_not;
  EXPECT_EQ(device().Record(
                stream(), [&] { stream().Wait(*event); }, &why_not),
            nullptr);
  EXPECT_FALSE(why_not.empty());
  Double(x);
  EXPECT_EQ(First(x), 2.0F);
}

TEST_F(CudaMarkTest, OtherThreadsWorkDuringARecording) {
  const Tensor x = Ones(1'000);
  std::unique_ptr<DeviceBuffer> made;
  const auto recording = Record([&] {
    Double(x);
    std::thread([&] {
      const auto own = device().CreateStream(StreamPriority::kLow);
      made = device().Allocate(4096, MemoryKind::kDevice);
      device().Zero(*own, made->data(), 4096);
      own->Synchronize();
    }).join();
    Double(x);
  });
  ASSERT_NE(recording, nullptr);
  ASSERT_NE(made, nullptr);
  recording->Launch(stream());
  EXPECT_EQ(First(x), 4.0F);
}

// What a mark between two kernels takes, printed for docs/benchmarks.md: 200 kernels of about 25 us
// with and without a mark behind each, timed by marks, eager and recorded.
TEST_F(CudaMarkTest, ThePriceOfAMarkIsTold) {
  constexpr int kKernels = 200, kRounds = 15;
  const auto ring = Ring(1 << 14);
  const Tensor x = Ones(int64_t{8} << 20);
  const auto work = [&](bool marked) {
    ring->Mark(stream());
    for (int i = 0; i < kKernels; ++i) {
      BackendOf(Side::kGpu).vector().AddTo(stream(), x, x);
      if (marked) ring->Mark(stream());
    }
    ring->Mark(stream());
  };
  // Microseconds of the median round; each leaves `marks` marks.
  const auto median = [&](const std::function<void()>& round, int64_t marks) {
    std::vector<double> us;
    for (int i = 0; i < kRounds; ++i) {
      round();
      stream().Synchronize();
      const int64_t last = ring->Newest();
      us.push_back(1e-3 *
                   static_cast<double>(*ring->TimeOf(last) - *ring->TimeOf(last - marks + 1)));
    }
    std::nth_element(us.begin(), us.begin() + kRounds / 2, us.end());
    return us[kRounds / 2];
  };
  const auto plain = Record([&] { work(false); });
  const auto marked = Record([&] { work(true); });
  ASSERT_TRUE(plain != nullptr && marked != nullptr);
  const auto price = [&](double with, double without) { return (with - without) / kKernels; };
  const double eager_plain = median([&] { work(false); }, 2);
  const double eager_marked = median([&] { work(true); }, 2 + kKernels);
  const double recorded_plain = median([&] { plain->Launch(stream()); }, 2);
  const double recorded_marked = median([&] { marked->Launch(stream()); }, 2 + kKernels);
  std::printf("a mark takes %.2f us eager, %.2f us recorded, between kernels of %.1f us\n",
              price(eager_marked, eager_plain), price(recorded_marked, recorded_plain),
              recorded_plain / kKernels);
  EXPECT_EQ(ring->Newest(), kRounds * 2 * (2 + 2 + kKernels));
  EXPECT_GT(recorded_plain, 0);
}

}  // namespace
}  // namespace mt::kernels::cuda
