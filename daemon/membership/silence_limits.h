// How long silence lasts until something follows from it (L1, P7): configuration of the
// coordinator, checked as a whole (docs/design/control-plane.md#numbers).
#pragma once

#include <chrono>

#include "common/base/status.h"
#include "common/control/numbers.h"

namespace mt::daemon {

struct SilenceLimits {
  // Without a heartbeat for so long a worker is suspect, then lost.
  std::chrono::milliseconds suspect_after = control::kWorkerSuspectAfter;
  std::chrono::milliseconds lost_after = control::kWorkerLostAfter;
  // So long may a rank of a job be on no node, or do otherwise than the job's goal.
  std::chrono::milliseconds phantom_after = control::kPhantomAfter;
};

// InvalidArgument, with the flag and its bound, where a worker would be suspected of a single
// heartbeat that is late, be lost before the next one could save it, or where a rank would be
// missed before two heartbeats could have told of it.
Status CheckLimits(const SilenceLimits& limits);

}  // namespace mt::daemon
