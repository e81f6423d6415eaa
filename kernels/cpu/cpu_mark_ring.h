// Marks of the CPU, where every call runs at once: plain stores of the number and the caller's
// clock (kernels/core/mark_ring.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "kernels/core/mark_ring.h"

namespace mt::kernels::cpu {

class CpuMarkRing : public MarkRing {
 public:
  // `clock` must outlive the ring.
  CpuMarkRing(int64_t capacity, const base::Clock* clock)
      : CpuMarkRing(std::vector<MarkSlot>(static_cast<size_t>(std::max(capacity, int64_t{1}))),
                    clock) {}

  void Mark(Stream& /*stream*/) override {
    const int64_t n = ++reached_;
    const std::chrono::nanoseconds now = clock_->Now().time_since_epoch();
    // A reader on another thread that finds the slot half written sees sequence 0, which is no
    // mark.
    Store(&slot(n)->sequence, 0);
    Store(&slot(n)->nanoseconds, static_cast<uint64_t>(now.count()));
    Store(&slot(n)->sequence, static_cast<uint64_t>(n));
  }

 private:
  CpuMarkRing(std::vector<MarkSlot> slots, const base::Clock* clock)
      : MarkRing(slots.data(), static_cast<int64_t>(slots.size())),
        storage_(std::move(slots)),
        clock_(clock) {}

  static void Store(uint64_t* word, uint64_t value) {
    std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_seq_cst);
  }

  std::vector<MarkSlot> storage_;  // moving a vector leaves its elements where they are
  const base::Clock* const clock_;
  int64_t reached_ = 0;
};

}  // namespace mt::kernels::cpu
