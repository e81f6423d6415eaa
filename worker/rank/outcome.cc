// Both follow from the cause that worker/failure/failure.h attaches to a status.
#include "worker/rank/outcome.h"

#include "worker/failure/failure.h"
#include "worker/node/shim/rank_exit_codes.h"

namespace mt::rank {

int ExitCodeOf(const Status& status) {
  switch (failure::CauseOf(status)) {
    case failure::Cause::kNone:
      return shim::kExitDone;
    case failure::Cause::kUserError:
    case failure::Cause::kOutOfMemory:
      return shim::kExitConfig;
    case failure::Cause::kStorage:
      return shim::kExitCheckpoint;
    case failure::Cause::kNumeric:
      return shim::kExitNonfinite;
    case failure::Cause::kNetwork:
      return shim::kExitTransient;
    case failure::Cause::kHardware:
      return shim::kExitDevice;
    case failure::Cause::kHang:
    case failure::Cause::kInternal:
      return shim::kExitInternal;
  }
  return shim::kExitInternal;
}

int CauseNumberOf(const Status& status) { return static_cast<int>(failure::CauseOf(status)); }

}  // namespace mt::rank
