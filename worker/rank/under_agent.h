// A rank under an agent: the agent says what to run, hears how it goes and passes words.
#pragma once

#include "worker/rank/options.h"

namespace mt::rank {

// The rank's exit code. The token is taken from MT_RANK_TOKEN.
int RunUnderAgent(const Options& options);

}  // namespace mt::rank
