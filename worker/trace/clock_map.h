// From one clock to another that runs at almost the same rate: a device's and the host's, two of
// one device. Pure values.
#pragma once

#include <cmath>
#include <cstdint>

namespace mt::trace {

// One moment by both clocks, in nanoseconds.
struct ClockPoint {
  int64_t from = 0;
  int64_t to = 0;
};

// Through `begin`, at the rate that `end` shows. Points that are too close, or show rates that no
// two clocks have, tell nothing of the rate: then both run alike.
class ClockMap {
 public:
  ClockMap() = default;
  ClockMap(const ClockPoint& begin, const ClockPoint& end) : begin_(begin) {
    constexpr int64_t kLeastNanos = 10'000'000;
    constexpr double kMostApart = 1e-3;
    if (end.from - begin.from < kLeastNanos) return;
    const double rate =
        static_cast<double>(end.to - begin.to) / static_cast<double>(end.from - begin.from);
    if (std::abs(rate - 1) < kMostApart) rate_ = rate;
  }
  int64_t operator()(int64_t at) const {
    const int64_t behind = at - begin_.from;
    return begin_.to + behind + std::llround(static_cast<double>(behind) * (rate_ - 1));
  }

 private:
  ClockPoint begin_;
  double rate_ = 1;
};

}  // namespace mt::trace
