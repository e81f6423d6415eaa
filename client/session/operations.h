// Waits for a long-running operation, across restarts of the coordinator, until it is done, the
// limit passes, or Ctrl-C, which leaves the operation running and says how to look at it.
#pragma once

#include <chrono>
#include <optional>

#include "client/session/session.h"

namespace mt::client {

// Blocks. On kExitOk *operation is done, with or without an error; otherwise kExitInterrupted after
// Ctrl-C, kExitTimedOut after `limit`, or the exit code of a failed call, with the reason on
// stderr.
ExitCode WaitDone(const Api& api, std::optional<std::chrono::milliseconds> limit,
                  v1::Operation* operation);

// True for the name of an operation ("operations/<uid>"), false for that of a job.
bool IsOperationName(const std::string& text);

}  // namespace mt::client
