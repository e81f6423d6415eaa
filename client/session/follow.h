// Follows a job to its end: states, warnings, evaluations and checkpoints as lines, training as one
// live line on a terminal and as an occasional line elsewhere. It survives a restart of the
// coordinator: it reports the lost connection and continues when the coordinator is back.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "client/session/follow_display.h"
#include "client/session/session.h"

namespace mt::client {

// A target that ends following before the job's end; at most one member is set.
struct WaitTarget {
  int state = 0;                // megatrain.v1.JobState; 0: no state
  int64_t checkpoint_step = 0;  // a checkpoint saved at this step or later; 0: none
};

// What to follow, and how.
struct FollowArgs {
  GlobalOptions options;
  std::string job_uid;
  FollowShow show = FollowShow::kAll;
  bool samples = false;           // with kAll: what evaluations write (training.eval.prompts)
  const v1::Job* told = nullptr;  // the job as it was described already; null: nothing was said
  std::optional<std::chrono::milliseconds> limit = {};  // nullopt: no limit
  WaitTarget until = {};
};

// Blocks, and uses two further threads. Returns 0, 6 or 9 by the job's end (exit_code.h); 5 after
// Ctrl-C, which leaves the job running and says how to follow it again; 8 after `limit`; 2 where
// the coordinator was unreachable for too long. With `until`: 0 as soon as the target is reached;
// where the job ended before, 9 if it failed or was cancelled, else 1.
ExitCode Follow(const FollowArgs& args);
// Follow; where -o asks for another format than a table, it shows nothing on the way and prints the
// job as it is at the end, unless Ctrl-C or a lost connection ended it.
ExitCode FollowThenPrint(FollowArgs args, const Api& api);

}  // namespace mt::client
