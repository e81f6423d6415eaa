// A job file with its overrides, as `submit` and `validate` read it.
#pragma once

#include <string>
#include <vector>

#include "client/session.h"

namespace CLI {
class App;
}
namespace megatrain::v1 {
class JobSpec;
}

namespace mt::client {

struct JobFileArgs {
  std::string path;  // "-": standard input
  std::vector<std::string> overrides;
};

// -f and --set, filled while parsing.
void AddJobFileFlags(CLI::App* command, JobFileArgs* args);

// Reads, completes and checks the job; all faults go to stderr, one a line. kExitOk, or
// kExitInvalidInput.
ExitCode ReadJobFile(const JobFileArgs& args, const GlobalOptions& options,
                     megatrain::v1::JobSpec* job);

// Ranks end with the worker of `mtctl dev up`, unless the job says otherwise: nothing is left
// behind on a laptop.
void SetDevPolicy(const GlobalOptions& options, megatrain::v1::JobSpec* job);

// The job as a job file: YAML, or JSON with `-o json` or jsonl.
ExitCode PrintJobFile(const megatrain::v1::JobSpec& job, const GlobalOptions& options);

}  // namespace mt::client
