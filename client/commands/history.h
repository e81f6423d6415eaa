// The range of a job's history that `metrics` and `plot` request.
#pragma once

#include <string>
#include <vector>

#include "client/commands/commands.h"

namespace CLI {
class Option;
}

namespace mt::client {

// What the flags select.
struct HistoryArgs {
  std::string job;
  std::string uid;  // of the job that the name means (FindJobWithRun); empty: not looked up
  int64_t from_step = 0, to_step = 0;  // 0: open
  int64_t since_ms = 0;                // counted back from now; 0: not limited
  int attempt = 0;                     // of the run, 1 is the oldest; 0: all
  int points = 0;                      // at most so many points; 0: the command's default
  std::vector<std::string> names;      // metrics; empty: all
};

// Adds job, --steps, --since, --attempt and --points to `command`; returns those that the caller
// may make others exclude.
struct RangeOptions {
  CLI::Option* steps;
  CLI::Option* since;
  CLI::Option* points;
  CLI::Option* attempt;
};
RangeOptions AddHistoryFlags(CLI::App* command, HistoryArgs* args);

// What the flags ask of the coordinator.
v1::QueryHistoryRequest HistoryRequest(const HistoryArgs& args, const GlobalOptions& options);
// Looks up whose run args->job means, before any query, and sets args->uid. Errors as
// FindJobWithRun.
Status FindRun(const Api& api, HistoryArgs* args, const GlobalOptions& options);
// Queries the history. `options` say whose namespace the job's name is in. Errors as
// Api::QueryHistory.
StatusOr<v1::History> FetchHistory(const Api& api, const HistoryArgs& args,
                                   const GlobalOptions& options);

// Parses "10:200", "10:", ":200" or "10" into from and to (0: open); returns false for anything
// else.
bool ParseSteps(const std::string& text, int64_t* from, int64_t* to);

}  // namespace mt::client
