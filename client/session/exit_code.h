// Exit codes of mtctl, on which scripts branch (README.md has the table). They are never
// renumbered.
#pragma once

#include "common/base/status.h"

namespace megatrain::v1 {
class Job;
class Operation;
}  // namespace megatrain::v1

namespace mt::client {

enum ExitCode : int {
  kExitOk = 0,
  kExitError = 1,
  kExitConnection = 2,
  kExitInvalidInput = 3,
  kExitServer = 4,
  kExitInterrupted = 5,
  kExitIo = 6,
  kExitTimedOut = 8,
  kExitJobFailed = 9,
  kExitUsage = 128,
};

// The exit code of a failed call: kExitConnection for kUnavailable and kDeadlineExceeded,
// kExitInvalidInput for kInvalidArgument, kNotFound, kAborted (a stale etag) and similar codes,
// kExitIo for kDataLoss and kPermissionDenied, kExitInterrupted for kCancelled, else kExitServer.
ExitCode ExitCodeOf(const Status& status);

// The exit code of a finished operation: kExitOk without an error, else kExitInvalidInput, kExitIo
// or kExitServer by the error's code.
ExitCode ExitCodeOf(const megatrain::v1::Operation& operation);

// The exit code of a job in a final state: kExitOk where it succeeded, kExitIo where it succeeded
// but its last checkpoint is stale, kExitJobFailed where it failed or was cancelled.
ExitCode ExitCodeOf(const megatrain::v1::Job& job);

}  // namespace mt::client
