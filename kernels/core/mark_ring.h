// Marks are points in a stream's order together with the time at which the device reached them. The
// host can read them at any moment without waiting, also while work between them still runs and
// inside recordings (CUDA graphs; device.h). A mark costs one small kernel on a GPU and a few
// stores on the CPU. Step and phase times and hang detection are based on marks alone
// (docs/design/gpu-engine.md#marks).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "common/base/check.h"

namespace mt::kernels {

class Stream;

// One mark as the device writes it. A GPU writes both fields in a single 16-byte store, so a reader
// never sees half a mark.
struct alignas(16) MarkSlot {
  uint64_t sequence = 0;  // number of the mark, from 1; 0: never written
  uint64_t nanoseconds = 0;
};

// The marks of one stream, numbered from 1 in the order in which the stream reaches them. The
// device counts them, so that a recording that contains marks can be launched any number of times.
// Mark n lies in slot n modulo capacity and can be read until mark n + capacity is reached: the
// owner must read in time or choose a large enough capacity. Times are nanoseconds of the device's
// clock, and only differences within one ring are meaningful; GPU clocks tick every 32 ns (H200) to
// 1 us.
// Threading: Mark by the thread that uses the stream; TimeOf and Newest by any thread, at any time;
// neither blocks.
class MarkRing {
 public:
  virtual ~MarkRing() = default;
  MarkRing(const MarkRing&) = delete;
  MarkRing& operator=(const MarkRing&) = delete;

  // Enqueues the next mark, or captures it while `stream` is being recorded. All marks of a ring
  // must be ordered: on one stream, or on streams that wait for each other.
  virtual void Mark(Stream& stream) = 0;

  int64_t capacity() const { return capacity_; }
  // Time at which mark n was reached, in nanoseconds; nullopt if it is not yet reached, or if a
  // later mark overwrote it.
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
  // Number of the newest mark reached, 0 before the first; all marks up to it are reached as well.
  // Scans the slots from the last result on, at most `capacity` of them. For a reader that is more
  // than a lap behind, the result may be older than the newest mark, because a slot that is being
  // overwritten on the CPU reads as empty.
  int64_t Newest() const {
    int64_t newest = newest_.load(std::memory_order_relaxed);
    for (int64_t looked = 0; looked < capacity_; ++looked) {
      // For a reader a lap behind the device, the slot holds an even newer mark.
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
  // `slots` [capacity], zeroed, in memory that host and device can access; must outlive the ring.
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
