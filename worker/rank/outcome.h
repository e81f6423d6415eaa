// How a rank's run ended, as its parents read it: exit code (README.md) and cause.
#pragma once

#include <string>

#include "common/base/status.h"

namespace mt::rank {

// 0 for OK. Codes: worker/shim/rank_exit_codes.h.
int ExitCodeOf(const Status& status);
// megatrain.v1.Cause; 0 for OK.
int CauseNumberOf(const Status& status);

}  // namespace mt::rank
