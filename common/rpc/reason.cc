// The payload's type URL is the metadata key itself.
#include "common/rpc/reason.h"

#include <absl/strings/cord.h>

namespace mt::rpc {

Status WithReason(Status status, std::string_view reason) {
  status.SetPayload(kReasonKey, absl::Cord(base::ToAbsl(reason)));
  return status;
}

std::string ReasonOf(const Status& status) {
  const auto payload = status.GetPayload(kReasonKey);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace mt::rpc
