// The evaluations in one job's history: an append-only file next to that of its steps (FORMAT.md).
// They are few and small, so a reader reads them all. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "daemon/telemetry/append_file.h"

namespace megatrain::v1 {
class EvalRecord;
}

namespace mt::daemon {

// Collects evaluations in memory and writes them.
class HistoryEvals {
 public:
  // The file is created by the first Write.
  explicit HistoryEvals(std::string path);

  // Adds an evaluation in memory; drops it where a MiB waits to be written.
  void Append(const megatrain::v1::EvalRecord& eval);
  bool has_unwritten() const { return !unwritten_.empty(); }
  // Writes and syncs what was appended. After an error the next call tries again. Blocks.
  Status Write();
  // What has been appended and not written, in the format of the file.
  const std::string& unwritten() const { return unwritten_; }

 private:
  AppendFile file_;
  std::string unwritten_;
};

// The evaluations with from <= step <= to in the file, followed by those in `more` (in the format
// of the file), oldest first. An evaluation replaces earlier ones of its split with the same or a
// later step: these are repeats, or were undone by a rollback. Damage is skipped and logged. Reads
// the disk.
std::vector<megatrain::v1::EvalRecord> ReadHistoryEvals(const std::string& path,
                                                        const std::string& more, int64_t from,
                                                        int64_t to);

}  // namespace mt::daemon
