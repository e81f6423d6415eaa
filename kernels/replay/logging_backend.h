// A backend that hands every call on to another and notes it in a log. Fused entries are noted as
// what they are: one call. Copies and fills by the device are not ops and not noted.
#pragma once

#include <memory>

#include "kernels/ops/backend.h"
#include "kernels/replay/call_log.h"

namespace mt::kernels::replay {

// Both must outlive the result; as thread-safe as `backend`.
std::unique_ptr<Backend> MakeLoggingBackend(Backend* backend, CallLog* log);

}  // namespace mt::kernels::replay
