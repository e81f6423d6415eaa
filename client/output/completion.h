// Completion scripts for shells, generated from the program's own description of its commands and
// flags. The script runs mtctl to get the names of jobs, nodes and contexts. Pure.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mt::client {

enum class Shell { kBash, kZsh, kFish };

// The script for `source`; `app` is the root command.
std::string CompletionScript(const CLI::App& app, Shell shell);

}  // namespace mt::client
