// Small records beside a job's steps: an append-only file of entries, each a protobuf message with
// a checksum (FORMAT.md). They are few, so a reader reads them all. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/telemetry/append_file.h"

namespace mt::daemon {

// Collects the entries of one kind in memory and writes them.
class HistoryEntries {
 public:
  // `magic` begins each entry. The file is created by the first Write.
  HistoryEntries(std::string path, uint32_t magic);

  bool has_unwritten() const { return !unwritten_.empty(); }
  // Writes and syncs what was appended. After an error the next call tries again. Blocks.
  Status Write();
  // What has been appended and not written, in the format of the file.
  const std::string& unwritten() const { return unwritten_; }

 protected:
  // Adds a record in memory; drops it where a MiB waits to be written.
  void AppendRecord(std::string_view record);

 private:
  AppendFile file_;
  const uint32_t magic_;
  std::string unwritten_;
};

// Calls `take` with each record of the file, followed by those in `more` (in the format of the
// file), in the order of writing; it returns false for one that is damaged after all. Damage is
// skipped and logged; a file that is missing has no records. An error: the file cannot be read, and
// only those in `more` were. Reads the disk.
Status ReadHistoryEntries(const std::string& path, uint32_t magic, const std::string& more,
                          const std::function<bool(std::string_view record)>& take);

}  // namespace mt::daemon
