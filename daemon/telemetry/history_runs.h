// Which run each epoch in one job's history trained: an append-only file next to that of its steps
// (FORMAT.md). A row of the history has its epoch, and so its run. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "daemon/telemetry/history_entries.h"

namespace megatrain::v1 {
class EpochRun;
}

namespace mt::daemon {

class HistoryRuns : public HistoryEntries {
 public:
  explicit HistoryRuns(std::string path);

  // Adds the run of an epoch in memory, as HistoryEntries::AppendRecord.
  void Append(const megatrain::v1::EpochRun& run);
};

// The runs of all epochs in the file, followed by those in `more` (in the format of the file),
// oldest first; of an epoch that is told again, the last one. Damage is skipped and logged. Reads
// the disk.
std::vector<megatrain::v1::EpochRun> ReadHistoryRuns(const std::string& path,
                                                     const std::string& more);

}  // namespace mt::daemon
