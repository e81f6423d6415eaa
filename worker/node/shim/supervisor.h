// Starts the rank in its own process group, waits for it, stops it on request or when the agent is
// gone, and leaves no process of it behind. Single-threaded: one poll loop handles all events.
#pragma once

#include "worker/node/shim/options.h"

namespace mt::node {

// Exit codes of mt-shim itself; the rank's are in exit.json.
inline constexpr int kRecorded = 0;  // the rank is gone and exit.json was written
inline constexpr int kBadArguments = 2;
inline constexpr int kNotRecorded = 3;  // the rank is gone, but exit.json could not be written

// Runs the rank. Blocks until it and all of its descendants are gone; returns the shim's exit code.
int Supervise(const ShimOptions& options);

}  // namespace mt::node
