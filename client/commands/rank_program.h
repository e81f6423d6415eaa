// mt-rank, which has the engine and stands beside mtctl, run to read a checkpoint with this
// terminal; and which checkpoint that is, as verbs name it.
#pragma once

#include <string>
#include <vector>

#include "client/commands/commands.h"
#include "client/session/exit_code.h"

namespace CLI {
class App;
}

namespace mt::client {

struct ReaderTarget {
  std::string job;        // or a path
  std::string directory;  // a path, never a job
};
// The positional argument and --dir, of which one is given. `target` must live as long as the app.
void AddReaderTarget(CLI::App* command, ReaderTarget* target);

// Finds the folder and runs `mt-rank FLAG=FOLDER ARGUMENTS`, where `flag` is "--generate" or such.
// Blocks. Complains about what keeps it from running; returns what its exit code means.
ExitCode RunReader(const ReaderTarget& target, const std::string& flag,
                   std::vector<std::string> arguments, const GlobalOptions& options);

}  // namespace mt::client
