// Both follow from the cause that worker/failure/failure.h attaches to a status; of STORAGE the
// reason tells a save from a load.
#include "worker/rank/outcome.h"

#include "common/control/rank_exit_codes.h"
#include "common/rpc/reason.h"
#include "megatrain/v1/types.pb.h"
#include "worker/failure/failure.h"

namespace mt::rank {

int ExitCodeOf(const Status& status) {
  if (rpc::ReasonOf(status) == rpc::reason::kSaveFailed) return control::kExitSaveFailed;
  switch (failure::CauseOf(status)) {
    case failure::Cause::kNone:
      return control::kExitDone;
    case failure::Cause::kUserError:
    case failure::Cause::kOutOfMemory:
      return control::kExitConfig;
    case failure::Cause::kStorage:
      return control::kExitCheckpoint;
    case failure::Cause::kNumeric:
      return control::kExitNonfinite;
    case failure::Cause::kNetwork:
      return control::kExitTransient;
    case failure::Cause::kHardware:
      return control::kExitDevice;
    case failure::Cause::kHang:
    case failure::Cause::kInternal:
      return control::kExitInternal;
  }
  return control::kExitInternal;
}

// Both enums have the same numbers.
megatrain::v1::Cause ProtoCauseOf(const Status& status) {
  return static_cast<megatrain::v1::Cause>(failure::CauseOf(status));
}

}  // namespace mt::rank
