// Both follow from the cause that worker/failure/failure.h attaches to a status.
#include "worker/rank/outcome.h"

#include "worker/failure/failure.h"
#include "worker/node/shim/rank_exit_codes.h"

namespace mt::rank {

int ExitCodeOf(const Status& status) {
  switch (train::CauseOf(status)) {
    case train::Cause::kNone:
      return shim::kExitDone;
    case train::Cause::kUserError:
    case train::Cause::kOutOfMemory:
      return shim::kExitConfig;
    case train::Cause::kStorage:
      return shim::kExitCheckpoint;
    case train::Cause::kNumeric:
      return shim::kExitNonfinite;
    case train::Cause::kNetwork:
      return shim::kExitTransient;
    case train::Cause::kHardware:
      return shim::kExitDevice;
    case train::Cause::kHang:
    case train::Cause::kInternal:
      return shim::kExitInternal;
  }
  return shim::kExitInternal;
}

int CauseNumberOf(const Status& status) { return static_cast<int>(train::CauseOf(status)); }

}  // namespace mt::rank
