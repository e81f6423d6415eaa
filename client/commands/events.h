// The events command, which exists twice: as `mtctl events` and as `mtctl get events`.
#pragma once

#include "client/commands/commands.h"

namespace mt::client {

// Adds the flags of `events` to `command` and sets what it runs.
void AddEventsTo(CLI::App* command, const CommandContext& context);

}  // namespace mt::client
