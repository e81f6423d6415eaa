// Which part of a job's history `metrics` and `plot` ask for.
#pragma once

#include <string>
#include <vector>

#include "client/commands/commands.h"

namespace CLI {
class Option;
}

namespace mt::client {

struct HistoryArgs {
  std::string job;
  int64_t from_step = 0, to_step = 0;  // 0: open
  int64_t since_ms = 0;                // before now; 0: any time
  int points = 0;                      // 0: the command's default
  std::vector<std::string> names;      // empty: all
};

// Adds job, --steps, --since, --points; returns the two ranges for `excludes`.
struct RangeOptions {
  CLI::Option* steps;
  CLI::Option* since;
};
RangeOptions AddHistoryFlags(CLI::App* command, HistoryArgs* args);

StatusOr<v1::History> FetchHistory(const Api& api, const HistoryArgs& args,
                                   const GlobalOptions& options);

// "10:200", "10:", ":200" or "10" into from and to (0: open); false where it is none of these.
bool ParseSteps(const std::string& text, int64_t* from, int64_t* to);

}  // namespace mt::client
