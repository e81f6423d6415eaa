// The evaluations in one job's history: an append-only file next to that of its steps (FORMAT.md).
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/telemetry/history_entries.h"

namespace megatrain::v1 {
class EvalRecord;
}

namespace mt::daemon {

class HistoryEvals : public HistoryEntries {
 public:
  explicit HistoryEvals(std::string path);

  // Adds an evaluation in memory, as HistoryEntries::AppendRecord.
  void Append(const megatrain::v1::EvalRecord& eval);
};

// The evaluations with from <= step <= to in the file, followed by those in `more` (in the format
// of the file), oldest first. An evaluation replaces earlier ones of its split with the same or a
// later step: these are repeats, or were undone by a rollback. `samples`: with what they have
// written, which takes most of the memory. Damage is skipped and logged. Reads the disk.
std::vector<megatrain::v1::EvalRecord> ReadHistoryEvals(const std::string& path,
                                                        const std::string& more, int64_t from,
                                                        int64_t to, bool samples = false);

}  // namespace mt::daemon
