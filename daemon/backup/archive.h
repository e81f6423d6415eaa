// A backup as a tar archive: the database's copy, the history's files, and last the checksums of
// all of them, without which an archive is not whole. Reading is not thread-safe and blocks on the
// disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "daemon/backup/running_sum.h"

namespace mt::daemon {

// The entry behind all others: a line per file, 16 hexadecimal digits of its xxh3, two spaces,
// name.
inline constexpr char kSumsEntry[] = "backup.sums";
inline constexpr char kHistoryPrefix[] = "history/";

// "<16 digits>  <name>\n"
std::string SumLine(uint64_t sum, const std::string& name);

class BackupArchive {
 public:
  // `database` is a sealed copy. Of the history's files, those that are there now: they only grow,
  // or are replaced as a whole, so that what is read of them holds every step that the copy
  // acknowledges. A file that is gone when it is its turn belonged to a job that was deleted.
  static StatusOr<BackupArchive> Open(const std::string& database, const std::string& history);

  // Reads on; returns the next bytes of the archive, "" at its end.
  StatusOr<std::string> Next();

 private:
  struct Source {
    std::string name;  // in the archive
    std::string path;
    base::Fd fd;  // opened already where it may be replaced
  };
  BackupArchive() = default;
  // The source's header, or "" where its file is gone.
  StatusOr<std::string> Begin(Source source);
  StatusOr<std::string> Read();
  StatusOr<std::string> End();

  std::vector<Source> sources_;  // the next one last
  Source open_;                  // whose bytes are sent; without a descriptor: none
  int64_t size_ = 0;             // of open_, in bytes
  int64_t left_ = 0;             // bytes of open_ that were not sent yet
  RunningSum sum_;
  std::string sums_;
  bool ended_ = false;
};

}  // namespace mt::daemon
