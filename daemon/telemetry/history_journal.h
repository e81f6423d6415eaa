// The journal of the history: steps of all jobs that are in no frame yet, so that one sync makes a
// round's steps durable whatever the number of jobs. Append-only; written anew, with what is still
// needed, when it has grown (FORMAT.md). Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/telemetry/append_file.h"
#include "daemon/telemetry/history_table.h"

namespace mt::daemon {

class HistoryJournal {
 public:
  explicit HistoryJournal(std::string path);

  // What is in the file, oldest first; damage is logged and skipped. No file: nothing.
  using Visit = std::function<void(const std::string& job_uid, const HistoryTable& rows)>;
  Status Replay(const Visit& visit);

  // Notes the rows (level 0) for the next Write or Rewrite.
  void Add(std::string_view job_uid, const HistoryTable& rows);
  bool has_added() const { return !added_.empty(); }
  // Appends what was added and syncs. After an error nothing was added; add it again.
  Status Write();
  // Replaces the whole content by what was added.
  Status Rewrite();
  int64_t size_bytes() const { return file_.end(); }

 private:
  AppendFile file_;
  std::string added_;
};

}  // namespace mt::daemon
