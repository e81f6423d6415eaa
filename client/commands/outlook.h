// What the run of a job will read and take, and what changes where it goes on: told before the job
// is submitted, from what is known by then. Its ranks tell it again, exactly (v1::StartFacts).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/session/session.h"
#include "common/base/status.h"
#include "worker/train/job_data/data_passes.h"

namespace CLI {
class App;
}
namespace megatrain::v1 {
class Job;
class JobSpec;
}  // namespace megatrain::v1

namespace mt::client {

// Whether both save to the same directory, by default or because they say so.
bool SharesDirectory(const v1::JobSpec& job, const v1::Job& before);
// Whether `job`, with its defaults, goes on with the run that `before` has trained; `restart`:
// another one is begun on purpose. Pure.
bool GoesOnWith(const v1::JobSpec& job, const v1::Job& before, bool restart);

struct OutlookArgs {
  const v1::JobSpec* job = nullptr;  // with its defaults
  const v1::Job* before = nullptr;   // that had the job's name so far; null: none, or not known
  bool restart = false;
  std::optional<StatusOr<train::DataPasses>> passes{};  // nullopt: nobody knows where the data lie
};
// Tokens and steps; passes over the data, or from what they would follow; the time, where the job
// before had the same model and its speed is known; then, where the job goes on with a run, the
// fields that differ from those of the newest checkpoint. Nothing of a benchmark. Pure.
std::vector<std::string> OutlookLines(const OutlookArgs& args);

// Adds --data-root to `command`, which fills *data_root while parsing.
void AddDataRootFlag(CLI::App* command, std::string* data_root);
// The passes of the job over its data below `data_root`; where that is empty below the root of the
// cluster of `mtctl dev up`, if the options mean that one. nullopt: neither is known.
std::optional<StatusOr<train::DataPasses>> PassesHere(const v1::JobSpec& job,
                                                      const std::string& data_root,
                                                      const GlobalOptions& options);

// Prints the lines on stderr.
void SayOutlook(const OutlookArgs& args);

}  // namespace mt::client
