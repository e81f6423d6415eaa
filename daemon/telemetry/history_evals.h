// The evaluations of one job's history: an append-only file beside that of its steps (FORMAT.md).
// Few and small, so that a reader reads them all. Not thread-safe.
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

class HistoryEvals {
 public:
  explicit HistoryEvals(std::string path);

  void Append(const megatrain::v1::EvalRecord& eval);
  bool has_unwritten() const { return !unwritten_.empty(); }
  // Writes and syncs what was appended; after an error it is tried again by the next call.
  Status Write();
  // What was appended and not written, in the file's form.
  const std::string& unwritten() const { return unwritten_; }

 private:
  AppendFile file_;
  std::string unwritten_;
};

// The evaluations in the file and behind it `more` (in the file's form), oldest first, of steps
// `from` to `to`. Of one that came twice, and of those that a rollback undid, the later one counts.
// Damage is skipped.
std::vector<megatrain::v1::EvalRecord> ReadHistoryEvals(const std::string& path,
                                                        const std::string& more, int64_t from,
                                                        int64_t to);

}  // namespace mt::daemon
