// What mt-coordinator does to a state folder that no coordinator uses: `init`, `check`, `restore`.
// Each is a subcommand with its own --state.
#pragma once

#include <functional>

#include "common/base/status.h"

namespace CLI {
class App;
}

namespace mt::daemon {

// Adds the subcommands. The one that is given stores in `run` what main is to do instead of
// serving; it prints what it did and returns OK, or what is wrong. `run` outlives the parsing.
void AddOfflineCommands(CLI::App* app, std::function<Status()>* run);

}  // namespace mt::daemon
