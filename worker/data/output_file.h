// A file that grows as it is written, for data sets larger than memory: small pieces are gathered,
// large ones go straight to the kernel. Not thread-safe, except for what says so; every call may
// block on disk. Errors name the file and the byte at which it stopped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::data {

class OutputFile {
 public:
  OutputFile() = default;
  // Opens `path` to be appended to behind its first `keep_bytes`; what follows them is cut off. A
  // file that is missing is created. kDataLoss if the file is shorter than `keep_bytes`.
  static StatusOr<OutputFile> Open(const std::string& path, int64_t keep_bytes = 0);

  Status Append(std::string_view bytes);
  // Hands to the kernel what Append has gathered.
  Status Flush();
  // Writes at a place of its own, for files whose size is known before; Append is not used then.
  Status WriteAt(int64_t offset, std::string_view bytes);
  // Flush, then waits until the disk has it all.
  Status Sync();
  // Cuts the file back to its first `bytes`, after Flush.
  Status CutBack(int64_t bytes);

  // Bytes appended so far, gathered ones included.
  int64_t bytes() const { return written_bytes_ + static_cast<int64_t>(gathered_.size()); }
  const std::string& path() const { return path_; }
  // Descriptor, for locks and syncs by another thread.
  int fd() const { return fd_.get(); }

 private:
  std::string path_;
  base::Fd fd_;
  std::string gathered_;
  int64_t written_bytes_ = 0;
};

// Moves a finished pair into place as `<prefix>.bin` and `<prefix>.idx`; both are on disk already.
// Existing files are replaced; after a crash the old pair is there, or no .idx.
Status PublishPair(const std::string& bin, const std::string& idx, const std::string& prefix);

}  // namespace mt::data
