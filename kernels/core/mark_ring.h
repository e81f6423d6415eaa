// Marks: points in a stream's order with the time at which the device reached them, readable by the
// host at any moment without waiting, also while the work between them still runs and inside
// recordings (device.h). A mark costs one small kernel on a GPU and one store on the CPU. Times of
// steps and phases and the verdict on a hang read nothing else (docs/design/gpu-engine.md#marks).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "common/base/check.h"

namespace mt::kernels {

class Stream;

// One mark as the device writes it: both words in one store of 16 bytes.
struct alignas(16) MarkSlot {
  uint64_t sequence = 0;  // 0: never written
  uint64_t nanoseconds = 0;
};

// The marks of one stream. They are numbered from 1 in the order in which the stream reaches them;
// the device counts, so that a recording that holds marks can be launched any number of times.
// Mark n lies in slot n modulo capacity: it can be read until mark n + capacity is reached, so the
// owner reads in time or takes a ring that is large enough. Times are nanoseconds of the device's
// clock and only differences within one ring mean anything; GPU clocks tick every 32 ns (H200) to
// 1 us.
// Threading: Mark by the thread that uses the stream; TimeOf and Newest by any thread, at any time.
class MarkRing {
 public:
  virtual ~MarkRing() = default;
  MarkRing(const MarkRing&) = delete;
  MarkRing& operator=(const MarkRing&) = delete;

  // Enqueues the next mark, or records it while `stream` is being recorded. Always on the same
  // stream, or on streams that wait for each other: marks of a ring never run side by side.
  virtual void Mark(Stream& stream) = 0;

  int64_t capacity() const { return capacity_; }
  // When mark n was reached. nullopt: not yet, or overwritten by a later one.
  std::optional<int64_t> TimeOf(int64_t n) const {
    CHECK_GT(n, 0);
    MarkSlot* const at = slot(n);
    const auto wanted = static_cast<uint64_t>(n);
    if (Sequence(at) != wanted) return std::nullopt;
    const uint64_t time =
        std::atomic_ref<uint64_t>(at->nanoseconds).load(std::memory_order_acquire);
    if (Sequence(at) != wanted) return std::nullopt;  // overwritten in between
    return static_cast<int64_t>(time);
  }
  // The newest mark reached, 0 before the first: all up to it are. Looks at those reached since the
  // last call, at most at `capacity` slots. Of an owner who is a lap behind it may be older: a slot
  // that is just being written over on the CPU says nothing.
  int64_t Newest() const {
    int64_t newest = newest_.load(std::memory_order_relaxed);
    for (int64_t looked = 0; looked < capacity_; ++looked) {
      // A lap behind the device, the slot holds a mark that is newer still.
      const auto found = static_cast<int64_t>(Sequence(slot(newest + 1)));
      if (found <= newest) break;
      newest = found;
    }
    int64_t known = newest_.load(std::memory_order_relaxed);
    while (known < newest &&
           !newest_.compare_exchange_weak(known, newest, std::memory_order_relaxed)) {
    }
    return std::max(known, newest);
  }

 protected:
  // `slots` [capacity], zeroed, in memory that host and device see; must live as long as the ring.
  MarkRing(MarkSlot* slots, int64_t capacity) : slots_(slots), capacity_(capacity) {
    CHECK_GT(capacity, 0);
  }

  MarkSlot* slot(int64_t n) const { return slots_ + n % capacity_; }

 private:
  static uint64_t Sequence(MarkSlot* slot) {
    return std::atomic_ref<uint64_t>(slot->sequence).load(std::memory_order_acquire);
  }

  MarkSlot* const slots_;
  const int64_t capacity_;
  mutable std::atomic<int64_t> newest_{0};
};

}  // namespace mt::kernels
