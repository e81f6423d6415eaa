// Subcommands of `mtctl explain` that derive something from a job file, without a coordinator.
#pragma once

#include "client/commands/commands.h"

namespace mt::client {

// Add `explain schedule` and `explain memory` to the command `explain`.
void AddExplainSchedule(CLI::App* explain, const CommandContext& context);
void AddExplainMemory(CLI::App* explain, const CommandContext& context);

}  // namespace mt::client
