// Why a run failed, in the terms of the control plane. The cause travels with the Status as a
// payload; a status without a payload has the cause of its code. Which exit code follows is said in
// worker/rank/outcome.h.
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

// The status with this cause attached. OK stays OK, and a cause that is attached already stays.
Status WithCause(const Status& status, Cause cause);
// kNone for OK.
Cause CauseOf(const Status& status);

// Called in an exception handler: the exception as a status with its cause. Rethrows anything that
// does not derive from std::exception.
Status StatusOfException();

}  // namespace mt::failure
