// Reads rank logs: the last lines of a log, and what was appended since. Lines end in '\n'; a line
// that is still being written is returned only once it is complete. Blocks on the local disk only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::node {

// The last `count` complete lines, and an unfinished last one, oldest first; none if there is no
// such file. Lines that begin more than kMaxTailBytes before the end are left out.
std::vector<std::string> LastLines(const std::string& path, int count);

class LogReader {
 public:
  static constexpr int64_t kMaxTailBytes = 1 << 20;
  static constexpr int64_t kMaxChunkBytes = 256 << 10;

  // Opens the file so that the first Read begins with its last `lines` lines. Errors: those of
  // opening and reading a file.
  static StatusOr<LogReader> OpenTail(const std::string& path, int lines);

  // Opens a file so that the first Read begins with its first byte, whatever it holds.
  static StatusOr<LogReader> OpenWhole(const std::string& path);

  // Opens a file so that the first Read begins with the byte at `offset`. kOutOfRange: the file has
  // fewer bytes.
  static StatusOr<LogReader> OpenAt(const std::string& path, int64_t offset);

  // Whether another file has the path now.
  bool IsReplaced() const;

  // Of the byte that the next Read begins with.
  int64_t offset() const { return offset_; }

  // Returns the complete lines that follow, at most kMaxChunkBytes; empty if there are none. With
  // `rest`, an unfinished last line counts as complete. A longer line than a chunk is returned in
  // pieces.
  StatusOr<std::string> Read(bool rest);

 private:
  LogReader(base::Fd fd, int64_t offset, std::string path)
      : fd_(std::move(fd)), offset_(offset), path_(std::move(path)) {}

  base::Fd fd_;
  int64_t offset_;
  std::string path_;
};

}  // namespace mt::node
