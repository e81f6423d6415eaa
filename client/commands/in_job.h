// `mtctl generate JOB --in-job`: the ranks that train the job write the text themselves, between
// two steps, with the weights that they have then. No slot, no checkpoint; training waits for it.
// One thread.
#pragma once

#include <string>

#include "client/session/session.h"

namespace megatrain::v1 {
class Job;
}
namespace mt::decode {
struct GenerateFlags;
}

namespace mt::client {

// Whether a job would do it now: it trains, and has planned memory for it
// (training.eval.decode_tokens).
bool WritesInJob(const megatrain::v1::Job& job);

// Asks the job of this name or uid and blocks until it has written; after Ctrl-C the operation goes
// on. Prints the texts as a job of kind generate does, or with -o json the operation, failed or
// not.
ExitCode GenerateInJob(const std::string& job, const decode::GenerateFlags& flags,
                       const GlobalOptions& options);

}  // namespace mt::client
