// What the ranks of a job keep, from its file alone; of one that reads a checkpoint, from that.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/spec/memory_formula.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::client {

// The memory of a rank of each pipeline stage, in *job resolved for the slots that it asks for (a
// device of auto is counted as CPU slots). Errors as those of its fields and schedule.
StatusOr<std::vector<spec::RankMemory>> MemoryByStage(megatrain::v1::JobSpec* job);

// The memory of a job that reads a checkpoint, which lies below `root` here. Errors: those of
// finding it and of its manifest.
StatusOr<spec::RankMemory> MemoryOfReaderBelow(const std::string& root,
                                               const megatrain::v1::JobSpec& reader);

// The sum over all ranks.
spec::RankMemory MemoryOfAll(const megatrain::v1::JobSpec& job,
                             const std::vector<spec::RankMemory>& stages);

}  // namespace mt::client
