// Completion scripts for shells, made from the program's own description of its commands and flags.
// Names of jobs, nodes and contexts are asked from mtctl itself while completing. Pure.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mt::client {

enum class Shell { kBash, kZsh, kFish };

// `app` is the root. The text is for `source`.
std::string CompletionScript(const CLI::App& app, Shell shell);

}  // namespace mt::client
