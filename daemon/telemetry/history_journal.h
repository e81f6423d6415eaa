// The journal of the history: steps of all jobs that are in no frame yet, so that one sync makes
// the new steps durable however many jobs there are. Append-only; when it has grown too large it is
// rewritten with the content that is still needed (FORMAT.md). Not thread-safe; calls block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/telemetry/append_file.h"
#include "daemon/telemetry/history_table.h"

namespace mt::daemon {

// One file, shared by all jobs.
class HistoryJournal {
 public:
  // Touches no file until Replay or the first write.
  explicit HistoryJournal(std::string path);

  // Visits the entries from the oldest to the newest. Damage is logged and skipped; a missing file
  // has no entries. An error means that the file cannot be read.
  using Visit = std::function<void(const std::string& job_uid, const HistoryTable& rows)>;
  Status Replay(const Visit& visit);

  // Adds rows (of level 0) to the next Write or Rewrite.
  void Add(std::string_view job_uid, const HistoryTable& rows);
  bool has_added() const { return !added_.empty(); }
  // Appends what was added and syncs. After an error nothing was written and what was added is
  // gone: the caller adds it again.
  Status Write();
  // Atomically replaces the whole content by what was added; after an error as Write.
  Status Rewrite();
  int64_t size_bytes() const { return file_.end(); }

 private:
  AppendFile file_;
  std::string added_;
};

}  // namespace mt::daemon
