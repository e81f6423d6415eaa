// A rank under an agent, which tells it what to run, receives its reports and passes on the
// coordinator's commands.
#pragma once

#include "worker/rank/options.h"

namespace mt::rank {

// Runs the rank and returns its exit code. The token is taken from the environment variable
// MT_RANK_TOKEN. Blocks.
int RunUnderAgent(const Options& options);

}  // namespace mt::rank
