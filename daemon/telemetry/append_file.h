// A file that only grows: entries are written behind its end and made durable before the end moves,
// so that a failed write is overwritten by the next one. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::daemon {

// All of `bytes` at `offset`, synced to the disk. Errors name the path. Blocking.
Status WriteDurably(int fd, int64_t offset, std::string_view bytes, const std::string& path);

class AppendFile {
 public:
  // Entries begin at multiples of `align`: what a kill left of a write is stepped over.
  AppendFile(std::string path, int64_t align) : path_(std::move(path)), align_(align) {}

  const std::string& path() const { return path_; }
  // Behind the last durable entry; 0 until the first Append.
  int64_t end() const { return end_; }
  // Opens the file where that has not been done (made if missing). After an error nothing was
  // appended; the next try writes over it.
  Status Append(std::string_view bytes);
  // The file holds these bytes and nothing else.
  Status Replace(std::string_view bytes);

 private:
  Status Open();

  std::string path_;
  int64_t align_;
  base::Fd fd_;
  int64_t end_ = 0;
};

}  // namespace mt::daemon
