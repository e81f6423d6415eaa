// What `mtctl explain` draws and counts of a job file, without a coordinator.
#pragma once

#include "client/commands/commands.h"

namespace mt::client {

// `explain schedule` and `explain memory`: add themselves below `explain`.
void AddExplainSchedule(CLI::App* explain, const CommandContext& context);
void AddExplainMemory(CLI::App* explain, const CommandContext& context);

}  // namespace mt::client
