// The mapping of canonical codes to mtctl's exit codes.
#include "client/session/exit_code.h"

#include <algorithm>

#include "megatrain/v1/types.pb.h"

namespace mt::client {

ExitCode ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitConnection;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kAborted:
      return kExitInvalidInput;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kPermissionDenied:
      return kExitIo;
    default:
      return kExitServer;
  }
}

ExitCode ExitCodeOf(const megatrain::v1::Operation& operation) {
  if (!operation.has_error()) return kExitOk;
  const auto code = static_cast<absl::StatusCode>(operation.error().code());
  const ExitCode as_call = ExitCodeOf(Status(code, ""));
  return as_call == kExitInvalidInput || as_call == kExitIo ? as_call : kExitServer;
}

ExitCode ExitCodeOf(const megatrain::v1::Job& job) {
  if (job.state() != megatrain::v1::SUCCEEDED) return kExitJobFailed;
  const bool stale = std::any_of(job.conditions().begin(), job.conditions().end(),
                                 [](const auto& c) { return c.type() == "CheckpointStale"; });
  return stale ? kExitIo : kExitOk;
}

}  // namespace mt::client
