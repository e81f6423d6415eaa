// An append-only file: an entry is written behind the end and made durable before the end moves, so
// that a failed write is overwritten by the next one. One thread at a time; calls block.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::daemon {

// Writes all of `bytes` at `offset` and syncs the data to the disk. Errors name the path.
Status WriteDurably(int fd, int64_t offset, std::string_view bytes, const std::string& path);

// Callers frame their entries themselves; this class knows only bytes.
class AppendFile {
 public:
  // Entries begin at multiples of `align` bytes, so that the remainder of an interrupted write is
  // stepped over. The file is opened by the first write.
  AppendFile(std::string path, int64_t align) : path_(std::move(path)), align_(align) {}

  const std::string& path() const { return path_; }
  // Position behind the last durable entry; 0 until the first Append.
  int64_t end() const { return end_; }
  // Writes and syncs `bytes`; opens the file first where needed, and creates it where missing.
  // After an error nothing counts as appended, and the next attempt writes over it.
  Status Append(std::string_view bytes);
  // Replaces the whole content atomically.
  Status Replace(std::string_view bytes);

 private:
  Status Open();

  std::string path_;
  int64_t align_;
  base::Fd fd_;
  int64_t end_ = 0;
};

}  // namespace mt::daemon
