// Starts the rank in its own process group, waits for it, ends it when asked or when the agent is
// gone, and leaves nothing of it behind. One thread; everything is an event of one poll.
#pragma once

#include "worker/shim/options.h"

namespace mt::shim {

// Exit codes of mt-shim itself; the rank's are in exit.json.
inline constexpr int kRecorded = 0;  // the rank is gone, exit.json says how
inline constexpr int kBadArguments = 2;
inline constexpr int kNotRecorded = 3;  // the rank is gone, but exit.json could not be written

// Blocks until the rank and all of its descendants are gone.
int Supervise(const Options& options);

}  // namespace mt::shim
