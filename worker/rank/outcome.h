// Maps the status of a rank's run to its exit code (README.md) and its cause, which its parents
// read.
#pragma once

#include <string>

#include "common/base/status.h"

namespace megatrain::v1 {
enum Cause : int;
}

namespace mt::rank {

// The exit code, 0 for OK (common/control/rank_exit_codes.h).
int ExitCodeOf(const Status& status);
// The cause as it is reported to the agent; CAUSE_UNSPECIFIED for OK.
megatrain::v1::Cause ProtoCauseOf(const Status& status);

}  // namespace mt::rank
