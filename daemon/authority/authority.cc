// The refusal in words.
#include "daemon/authority/authority.h"

#include "common/rpc/reason.h"

namespace mt::daemon {

Status Authority::CheckOrders() const {
  if (IsSuperseded()) {
    return rpc::WithReason(
        base::FailedPrecondition("this coordinator gives no orders any more: {}", superseded_),
        rpc::reason::kCoordinatorSuperseded);
  }
  return CheckStore();
}

Status Authority::CheckStore() const {
  if (!store_.empty()) {
    return rpc::WithReason(base::Unavailable("nothing can be changed at present: {}", store_),
                           rpc::reason::kStoreReadOnly);
  }
  return OkStatus();
}

}  // namespace mt::daemon
