// Reads rank logs: the last lines of one, and what was appended since. Lines end in '\n'; a line
// that is still being written is not shown until it is whole. Blocking on the local disk only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::node {

// At most `count` last whole lines (and the unfinished last one), oldest first; none where there is
// no file. Of a longer tail than kMaxTailBytes only the end.
std::vector<std::string> LastLines(const std::string& path, int count);

class LogReader {
 public:
  static constexpr int64_t kMaxTailBytes = 1 << 20;
  static constexpr int64_t kMaxChunkBytes = 256 << 10;

  // Positioned so that the first Read begins with the last `lines` lines.
  static StatusOr<LogReader> OpenTail(const std::string& path, int lines);

  // Whole lines appended since, at most kMaxChunkBytes; empty where there are none. With `rest`, an
  // unfinished last line counts as whole. A line longer than a chunk comes in pieces.
  StatusOr<std::string> Read(bool rest);

 private:
  LogReader(base::Fd fd, int64_t offset, std::string path)
      : fd_(std::move(fd)), offset_(offset), path_(std::move(path)) {}

  base::Fd fd_;
  int64_t offset_;
  std::string path_;
};

}  // namespace mt::node
