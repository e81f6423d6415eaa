// Within a turn time is cut off where the turn is too long, so that nobody who looks at it before
// the next turn sees the freeze; the next turn takes it out for good.
#include "daemon/membership/own_time.h"

#include <algorithm>

#include "common/control/numbers.h"

namespace mt::daemon {

std::chrono::nanoseconds OwnTime::Turn() {
  const base::MonotonicTime now = clock_->Now();
  std::chrono::nanoseconds over{0};
  if (turned_.has_value()) {
    over = std::max<std::chrono::nanoseconds>(now - *turned_ - control::kOwnFreeze, over);
  }
  turned_ = now;
  left_out_ += over;
  return over;
}

void OwnTime::Hold(bool on) {
  if (on == held_.has_value()) return;
  const base::MonotonicTime shown = Now();
  if (on) {
    held_ = shown;
    return;
  }
  held_.reset();
  left_out_ += Now() - shown;
}

base::MonotonicTime OwnTime::Now() const {
  if (held_.has_value()) return *held_;
  base::MonotonicTime now = clock_->Now();
  if (turned_.has_value()) now = std::min(now, *turned_ + control::kOwnFreeze);
  return now - left_out_;
}

}  // namespace mt::daemon
