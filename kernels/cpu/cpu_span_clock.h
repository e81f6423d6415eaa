// Spans of the CPU, where every call is over when it returns: readings of the caller's clock
// (kernels/core/span_clock.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "kernels/core/span_clock.h"

namespace mt::kernels::cpu {

class CpuSpanClock : public SpanClock {
 public:
  // `clock` must outlive the object.
  CpuSpanClock(int64_t capacity, const base::Clock* clock)
      : SpanClock(capacity), points_(static_cast<size_t>(num_points())), clock_(clock) {}

 protected:
  bool Note(Stream& /*stream*/, int64_t point) override {
    points_[static_cast<size_t>(point)] = clock_->Now();
    return true;
  }
  double SecondsAt(int64_t point) override {
    const auto since = points_[static_cast<size_t>(point)] - base::MonotonicTime{};
    return std::chrono::duration<double>(since).count();
  }

 private:
  std::vector<base::MonotonicTime> points_;
  const base::Clock* const clock_;
};

}  // namespace mt::kernels::cpu
