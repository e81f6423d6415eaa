// Both follow from the cause that worker/failure/failure.h attaches to a status.
#include "worker/rank/outcome.h"

#include "megatrain/v1/types.pb.h"
#include "worker/failure/failure.h"
#include "worker/node/shim/rank_exit_codes.h"

namespace mt::rank {

int ExitCodeOf(const Status& status) {
  switch (failure::CauseOf(status)) {
    case failure::Cause::kNone:
      return node::kExitDone;
    case failure::Cause::kUserError:
    case failure::Cause::kOutOfMemory:
      return node::kExitConfig;
    case failure::Cause::kStorage:
      return node::kExitCheckpoint;
    case failure::Cause::kNumeric:
      return node::kExitNonfinite;
    case failure::Cause::kNetwork:
      return node::kExitTransient;
    case failure::Cause::kHardware:
      return node::kExitDevice;
    case failure::Cause::kHang:
    case failure::Cause::kInternal:
      return node::kExitInternal;
  }
  return node::kExitInternal;
}

// Both enums have the same numbers.
megatrain::v1::Cause ProtoCauseOf(const Status& status) {
  return static_cast<megatrain::v1::Cause>(failure::CauseOf(status));
}

}  // namespace mt::rank
