// A backend that forwards every call to another backend and notes it in a log. A fused entry is
// noted as one call. Copies and fills by the Device are not ops and are not noted.
#pragma once

#include <memory>

#include "kernels/ops/backend.h"
#include "kernels/replay/call_log.h"

namespace mt::kernels::replay {

// Returns the logging backend. Neither argument is owned; both must outlive the result, which is as
// thread-safe as `backend`.
std::unique_ptr<Backend> MakeLoggingBackend(Backend* backend, CallLog* log);

}  // namespace mt::kernels::replay
