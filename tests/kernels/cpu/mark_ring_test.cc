// Marks of the CPU backend: order, time, wrap-around, and a reader on another thread.
#include "kernels/core/mark_ring.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "kernels/cpu/cpu_backend.h"

namespace mt::kernels {
namespace {

class MarkRingTest : public ::testing::Test {
 protected:
  std::unique_ptr<MarkRing> Ring(int64_t capacity, const base::Clock* clock) {
    return backend_->device().CreateMarkRing(capacity, clock);
  }

  base::ManualClock clock_;
  std::unique_ptr<Backend> backend_ = cpu::MakeCpuBackend({.num_threads = 1}).value();
  std::unique_ptr<Stream> stream_ = backend_->device().CreateStream(StreamPriority::kLow);
};

TEST_F(MarkRingTest, MarksCountFromOneAndTellTheClock) {
  const auto ring = Ring(8, &clock_);
  EXPECT_EQ(ring->Newest(), 0);
  EXPECT_FALSE(ring->TimeOf(1).has_value());
  ring->Mark(*stream_);
  clock_.Advance(std::chrono::nanoseconds(1'234));
  ring->Mark(*stream_);
  EXPECT_EQ(ring->Newest(), 2);
  EXPECT_EQ(*ring->TimeOf(2) - *ring->TimeOf(1), 1'234);
  EXPECT_FALSE(ring->TimeOf(3).has_value());
}

TEST_F(MarkRingTest, AMarkIsReadableUntilTheRingHasGoneAround) {
  const auto ring = Ring(4, &clock_);
  for (int i = 0; i < 4; ++i) ring->Mark(*stream_);
  EXPECT_TRUE(ring->TimeOf(1).has_value());
  ring->Mark(*stream_);
  EXPECT_FALSE(ring->TimeOf(1).has_value()) << "mark 5 lies there now";
  EXPECT_TRUE(ring->TimeOf(2).has_value());
  EXPECT_EQ(ring->Newest(), 5);
}

TEST_F(MarkRingTest, TheNewestIsFoundAfterAnyNumberOfLaps) {
  for (const int marks : {1, 3, 4, 5, 7, 8, 9, 1'000, 1'001}) {
    const auto ring = Ring(4, &clock_);
    for (int i = 0; i < marks; ++i) ring->Mark(*stream_);
    EXPECT_EQ(ring->Newest(), marks);
    ring->Mark(*stream_);
    EXPECT_EQ(ring->Newest(), marks + 1);
  }
}

TEST_F(MarkRingTest, AReaderOnAnotherThreadNeverSeesAMarkThatIsTorn) {
  // Every mark's time is a thousand times its number, so a mixed pair shows.
  base::ManualClock* clock = &clock_;
  const auto ring = Ring(4, clock);
  const int64_t origin = [&] {
    ring->Mark(*stream_);
    return *ring->TimeOf(1) - 1'000;
  }();
  constexpr int64_t kMarks = 100'000;
  std::atomic<bool> done = false;
  std::thread reader([&] {
    int64_t newest = 0;
    while (!done) {
      const int64_t found = ring->Newest();
      EXPECT_GE(found, newest) << "the newest never falls";
      newest = found;
      if (newest == 0) continue;  // all slots looked at were just being written over
      const std::optional<int64_t> time = ring->TimeOf(newest);
      if (time) {
        EXPECT_EQ(*time, origin + 1'000 * newest);
      }
    }
  });
  for (int64_t n = 2; n <= kMarks; ++n) {
    clock->Advance(std::chrono::nanoseconds(1'000));
    ring->Mark(*stream_);
  }
  done = true;
  reader.join();
  EXPECT_EQ(ring->Newest(), kMarks);
}

TEST_F(MarkRingTest, TheCpuHasNoRecordings) {
  std::string why_not;
  bool ran = false;
  EXPECT_EQ(backend_->device().Record(
                *stream_, [&] { ran = true; }, &why_not),
            nullptr);
  EXPECT_FALSE(ran);
  EXPECT_NE(why_not.find("no recordings"), std::string::npos) << why_not;
}

}  // namespace
}  // namespace mt::kernels
