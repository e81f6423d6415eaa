// The process's real clock, and the manual clock of tests, whose wall time is its monotonic time
// plus 50 years: a plausible date that does not depend on the host.
#include "common/base/clock.h"

#include <ctime>
#include <fstream>

#include <fmt/chrono.h>

namespace mt::base {
namespace {

class RealClock final : public Clock {
 public:
  MonotonicTime Now() const override { return std::chrono::steady_clock::now(); }
  WallTime WallNow() const override { return std::chrono::system_clock::now(); }
  BootTime Boot() const override {
    static const std::string id = ReadBootId();
    timespec since{};
    if (id.empty() || clock_gettime(CLOCK_BOOTTIME, &since) != 0) return {};
    return {.id = id,
            .since = std::chrono::seconds(since.tv_sec) +
                     std::chrono::microseconds(since.tv_nsec / 1'000)};
  }

 private:
  static std::string ReadBootId() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id;
  }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock clock;
  return &clock;
}

MonotonicTime ManualClock::Now() const {
  MutexLock lock(&mu_);
  return MonotonicTime(std::chrono::duration_cast<MonotonicTime::duration>(elapsed_));
}

WallTime ManualClock::WallNow() const {
  MutexLock lock(&mu_);
  return WallTime(
      std::chrono::duration_cast<WallTime::duration>(elapsed_ + std::chrono::hours(24 * 365 * 50)));
}

BootTime ManualClock::Boot() const {
  MutexLock lock(&mu_);
  return {.id = "manual", .since = std::chrono::duration_cast<std::chrono::microseconds>(elapsed_)};
}

void ManualClock::Advance(std::chrono::nanoseconds by) {
  MutexLock lock(&mu_);
  elapsed_ += by;
}

int64_t ToUnixMicros(WallTime time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::string FormatUtc(int64_t unix_micros) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(static_cast<std::time_t>(unix_micros / 1000000)));
}

}  // namespace mt::base
