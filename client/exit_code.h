// Exit codes of mtctl: scripts branch on them (README.md has the table).
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

// What a failed call means: Unavailable and an answer that did not come in time are the connection,
// InvalidArgument, NotFound, Aborted (a stale etag) and the like the input, the rest the server.
ExitCode ExitCodeOf(const Status& status);

// What an operation that is done means: 0, or 3, 6 or 4 by the code of its error.
ExitCode ExitCodeOf(const megatrain::v1::Operation& operation);

// What a job in a final state means: 0; 6 where it succeeded but its last checkpoint is stale; 9
// failed or cancelled.
ExitCode ExitCodeOf(const megatrain::v1::Job& job);

}  // namespace mt::client
