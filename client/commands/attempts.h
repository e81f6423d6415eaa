// The jobs that are one run: a job that is submitted again over its own checkpoints goes on from
// them, under the same name.
#pragma once

#include <string>
#include <vector>

#include "client/commands/history.h"

namespace mt::client {

// The run that ends with the job `args.job`, oldest attempt first: jobs of its name, namespace and
// checkpoint directory, back to the one that started cold. Blocks; errors as Api::GetJob.
StatusOr<std::vector<v1::Job>> AttemptsOf(const Api& api, const std::string& job,
                                          const GlobalOptions& options);

// The histories of the attempts as one: each ends where the next one went on. Columns are those
// that every step has.
StatusOr<v1::History> FetchRun(const Api& api, const std::vector<v1::Job>& attempts,
                               const HistoryArgs& args, const GlobalOptions& options);

}  // namespace mt::client
