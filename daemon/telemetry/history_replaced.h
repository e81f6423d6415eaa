// Steps that a later epoch of the same job has trained again: an append-only file next to that of
// the job's steps (FORMAT.md), so that each attempt has all that it has trained. A step is known by
// (epoch, step). Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "daemon/telemetry/history_entries.h"
#include "daemon/telemetry/history_table.h"

namespace mt::daemon {

class HistoryReplaced : public HistoryEntries {
 public:
  explicit HistoryReplaced(std::string path);

  // Adds steps (level 0) in memory, but for those that it has: after a restart the journal replaces
  // them again. Steps of an epoch come from its end on. Reads the file at the first call; writes
  // where much waits. Blocks.
  void Append(const HistoryTable& steps);

 private:
  const std::string path_;
  bool known_ = false;                // first_ is filled in
  std::map<int64_t, int64_t> first_;  // the first step of each epoch that it has
};

// The steps of the epoch in the file, followed by those in `more` (in the format of the file), that
// lie in from_step to to_step, ascending, with the named columns (empty: all). Damage is skipped
// and logged. Reads the disk.
HistoryTable ReadHistoryReplaced(const std::string& path, const std::string& more, int64_t epoch,
                                 int64_t from_step, int64_t to_step,
                                 std::span<const std::string> names);

}  // namespace mt::daemon
