// Maps the status of a rank's run to its exit code (README.md) and its cause, which its parents
// read.
#pragma once

#include <string>

#include "common/base/status.h"

namespace mt::rank {

// The exit code, 0 for OK (worker/node/shim/rank_exit_codes.h).
int ExitCodeOf(const Status& status);
// The number of the megatrain.v1.Cause; 0 for OK.
int CauseNumberOf(const Status& status);

}  // namespace mt::rank
