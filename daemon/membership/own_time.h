// The time by which the coordinator judges the silence of others: monotonic time without the time
// in which it could not listen itself. A turn of its loop that lasts longer than kOwnFreeze (the
// process or its machine was stopped, a sync of the disk hung) counts as so long and no longer,
// and while it is on hold it stands still. Leases and limits are reckoned in it; its wall time is
// the one that is believed (docs/design/control-plane.md#time). Not thread-safe (the core's
// thread).
#pragma once

#include <chrono>
#include <optional>

#include "common/base/clock.h"
#include "daemon/membership/wall_trust.h"

namespace mt::daemon {

class OwnTime final : public base::Clock {
 public:
  // The clock outlives it.
  explicit OwnTime(const base::Clock* clock) : clock_(clock), wall_(clock) {}

  // A turn of the loop begins. Returns what is left out since the last one; zero as a rule. Without
  // any call all time counts.
  std::chrono::nanoseconds Turn();
  // On hold time stands still, as no order is given and no report is taken.
  void Hold(bool on);

  base::MonotonicTime Now() const override;
  base::WallTime WallNow() const override { return wall_.Now(); }
  base::BootTime Boot() const override { return clock_->Boot(); }
  WallTrust& wall() { return wall_; }

 private:
  const base::Clock* clock_;
  WallTrust wall_;
  std::chrono::nanoseconds left_out_{0};
  std::optional<base::MonotonicTime> turned_;  // by clock_
  std::optional<base::MonotonicTime> held_;    // the time that is shown
};

}  // namespace mt::daemon
