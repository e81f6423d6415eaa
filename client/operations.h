// Waits for a long-running operation: across restarts of the coordinator, until it is done, the
// limit passes or Ctrl-C, which leaves the operation running and says how to look at it.
#pragma once

#include <chrono>
#include <optional>

#include "client/session.h"

namespace mt::client {

// On kExitOk *operation is done (with or without an error). Else 5 after Ctrl-C, 8 after the limit,
// or what a failed call means; the reason is on stderr.
ExitCode WaitDone(const Api& api, std::optional<std::chrono::milliseconds> limit,
                  v1::Operation* operation);

// Whether a text names an operation rather than a job: "operations/<uid>".
bool IsOperationName(const std::string& text);

}  // namespace mt::client
