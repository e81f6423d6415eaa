// A job file with its overrides, as the verbs submit, bench, validate and explain read it.
#pragma once

#include <string>
#include <vector>

#include "client/session/session.h"

namespace CLI {
class App;
}
namespace megatrain::v1 {
class JobSpec;
}

namespace mt::client {

struct JobFileArgs {
  std::string path;                    // "-": standard input
  std::vector<std::string> overrides;  // of --set, in their order
};

// Adds -f and --set to `command`, which fill *args while parsing.
void AddJobFileFlags(CLI::App* command, JobFileArgs* args);

// Reads, completes and checks the job. All faults go to stderr, one per line. Returns kExitOk or
// kExitInvalidInput; with the latter *job is unspecified. *names_directory (may be null): whether
// file or --set names checkpoint.directory; else the coordinator chooses it, and the job shows what
// it chooses as a rule.
ExitCode ReadJobFile(const JobFileArgs& args, const GlobalOptions& options,
                     megatrain::v1::JobSpec* job, bool* names_directory = nullptr);

// For the cluster of `mtctl dev up`: makes ranks end with their worker unless the job says
// otherwise, so that nothing is left running on a laptop.
void SetDevPolicy(const GlobalOptions& options, megatrain::v1::JobSpec* job);

// Prints the job as a job file: YAML, or JSON with `-o json` or jsonl.
ExitCode PrintJobFile(const megatrain::v1::JobSpec& job, const GlobalOptions& options);

}  // namespace mt::client
