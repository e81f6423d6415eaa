// Events, as `mtctl events` and `mtctl get events` list and follow them.
#pragma once

#include "client/commands/commands.h"

namespace mt::client {

// Adds the flags and what to run.
void AddEventsTo(CLI::App* command, const CommandContext& context);

}  // namespace mt::client
