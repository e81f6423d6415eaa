// What each run of a directory of checkpoints has there. Pure, but for OtherRunsIn.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/inspect/listing.h"

namespace mt::checkpoint {

struct RunTotal {
  std::string run;          // its id; empty: it is not known whose they are
  int64_t checkpoints = 0;  // complete ones
  int64_t bytes = 0;        // of all its folders, unfinished ones, too
};

// The run that the directory is of now: the one that the fence names, else that of the newest
// complete checkpoint; empty: not known.
std::string CurrentRun(const Listing& listing);
// Of every run but this one that has folders here, in the order of their oldest ones.
std::vector<RunTotal> OtherRuns(const Listing& listing, std::string_view run);
// The same of the complete checkpoints of a directory, for a start: only other runs' folders are
// measured, and of this run's nothing but the manifest is read. Blocks. Errors: the directory, or
// its list of runs, cannot be read.
StatusOr<std::vector<RunTotal>> OtherRunsIn(const std::string& directory, std::string_view run);

}  // namespace mt::checkpoint
