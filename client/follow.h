// Follows a job to its end: states, warnings, evaluations and checkpoints as lines, training as one
// live line on a terminal (a line now and then elsewhere). Survives a restart of the coordinator:
// it says so and goes on when it is back.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "client/session.h"

namespace mt::client {

// What following waits for before the job's end; at most one is set.
struct WaitTarget {
  int state = 0;                // megatrain.v1.JobState; 0: its end
  int64_t checkpoint_step = 0;  // a saved checkpoint of this step or a later one; 0: none
};

struct FollowArgs {
  GlobalOptions options;
  std::string job_uid;
  bool show_progress = true;                       // false: `wait`, only the end
  std::optional<std::chrono::milliseconds> limit;  // none: as long as it takes
  WaitTarget until;
};

// 0, 6 or 9 by how the job ended (exit_code.h); 5 after Ctrl-C, which leaves the job running and
// says how to cancel it; 8 after the limit; 2 where the coordinator stayed away too long. With
// `until`: 0 once it is so; where the job ended without it, 9 if it failed or was cancelled,
// else 1.
ExitCode Follow(const FollowArgs& args);

}  // namespace mt::client
