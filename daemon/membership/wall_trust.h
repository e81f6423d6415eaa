// Whether the wall clock may be believed, and the wall time that is. Where it is hours off what the
// store recorded last, and the machine's time since its boot does not confirm that so much has
// passed, it is doubted for an hour, or until it returns: nothing is deleted and no deadline counts
// by it. While the coordinator runs only monotonic time counts (docs/design/control-plane.md#time).
// Not thread-safe (the core's thread).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"

namespace mt::daemon {

class WallTrust {
 public:
  // The clock outlives it. All is believed until Start.
  explicit WallTrust(const base::Clock* clock);

  // What the store recorded last, by the clock of the coordinator that wrote it.
  struct Recorded {
    int64_t wall_us = 0;  // Unix time; 0: nothing was recorded
    base::BootTime boot;  // at that moment
  };
  // To be called once, when the store is read. Returns what is wrong with the clock; empty:
  // nothing.
  std::string Start(const Recorded& last);
  // Ends the doubt when it is time, and then says by how much the time to reckon by jumps with it;
  // nullopt: nothing ended.
  std::optional<std::chrono::microseconds> Tick();
  bool is_doubted() const { return doubted_; }
  // The time to reckon by and to record: the wall clock's, but never ahead of what monotonic time
  // allows since it was believed; in doubt, what was recorded last and the time since.
  base::WallTime Now() const;

 private:
  base::WallTime Reckoned() const;

  const base::Clock* clock_;
  bool doubted_ = false;
  base::MonotonicTime since_;  // when `wall_` held
  base::WallTime wall_;
};

}  // namespace mt::daemon
