// Time as a dependency: logic takes a Clock, so that tests can move it by hand. Monotonic time
// decides about leases and deadlines; wall time is only displayed and stored.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/base/mutex.h"

namespace mt::base {

using MonotonicTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

// Time since the machine's boot, its sleep included: it tells how long a process was away.
struct BootTime {
  std::string id;  // of this boot; empty: not known
  std::chrono::microseconds since{0};
};

// Source of both times. Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
  virtual WallTime WallNow() const = 0;
  // Not known, unless a clock says otherwise.
  virtual BootTime Boot() const { return {}; }
  // The process-wide real clock; it lives as long as the process.
  static Clock* Real();
};

// A clock for tests: it stands still until Advance moves monotonic and wall time alike.
// Thread-safe.
class ManualClock final : public Clock {
 public:
  MonotonicTime Now() const override;
  WallTime WallNow() const override;
  BootTime Boot() const override;
  void Advance(std::chrono::nanoseconds by);

 private:
  mutable Mutex mu_;
  std::chrono::nanoseconds elapsed_ GUARDED_BY(mu_){std::chrono::hours(1)};
};

// Microseconds since 1970-01-01 UTC, truncated.
int64_t ToUnixMicros(WallTime time);
// Formats UTC to whole seconds: "2026-01-02T03:04:05Z".
std::string FormatUtc(int64_t unix_micros);

}  // namespace mt::base
