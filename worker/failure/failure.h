// Why a run failed, in the words of the control plane, and the exit code of its rank (table in
// worker/rank/README.md). The cause travels with the Status as a payload; without one it follows
// from the code.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/status.h"

namespace mt::failure {

// Values of megatrain.v1.Cause.
enum class Cause : uint8_t {
  kNone = 0,
  kUserError = 1,
  kOutOfMemory = 2,
  kNumeric = 3,
  kHang = 4,
  kHardware = 5,
  kNetwork = 6,
  kStorage = 7,
  kInternal = 11,
};

// "USER_ERROR", "OOM", ...: megatrain.v1.Cause's names.
std::string_view Name(Cause cause);

// The same status with this cause attached; OK stays OK. A cause that is there already stays.
Status WithCause(const Status& status, Cause cause);
// kNone for OK.
Cause CauseOf(const Status& status);

// In a handler of exceptions: what was thrown, as a status with its cause. Only what derives from
// std::exception; all else goes on.
Status StatusOfException();

// 0 done, 64 the job cannot run as it is, 73 a checkpoint could not be loaded, 74 NaN stop, 75
// transient (a peer or its network), 1 all else.
int ExitCodeOf(const Status& status);

}  // namespace mt::failure
