// Time as a dependency: logic takes a Clock, so that tests move it by hand. Monotonic time decides
// (leases, deadlines); wall time is only shown and stored.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/base/mutex.h"

namespace mt::base {

using MonotonicTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
  virtual WallTime WallNow() const = 0;
  // The process-wide real clock.
  static Clock* Real();
};

// Stands still until advanced. Thread-safe.
class ManualClock final : public Clock {
 public:
  MonotonicTime Now() const override;
  WallTime WallNow() const override;
  void Advance(std::chrono::nanoseconds by);

 private:
  mutable Mutex mu_;
  std::chrono::nanoseconds elapsed_ GUARDED_BY(mu_){std::chrono::hours(1)};
};

int64_t ToUnixMicros(WallTime time);
// "2026-01-02T03:04:05Z"
std::string FormatUtc(int64_t unix_micros);

}  // namespace mt::base
