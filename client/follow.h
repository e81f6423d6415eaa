// Follows a job to its end: states, warnings, evaluations and checkpoints as lines, training as one
// live line on a terminal (a line now and then elsewhere). Survives a restart of the coordinator:
// it says so and goes on when it is back.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "client/session.h"

namespace mt::client {

struct FollowArgs {
  GlobalOptions options;
  std::string job_uid;
  bool show_progress = true;                       // false: `wait`, only the end
  std::optional<std::chrono::milliseconds> limit;  // none: as long as it takes
};

// 0, 6 or 9 by how the job ended (exit_code.h); 5 after Ctrl-C, which leaves the job running and
// says how to cancel it; 8 after the limit; 2 where the coordinator stayed away too long.
ExitCode Follow(const FollowArgs& args);

}  // namespace mt::client
