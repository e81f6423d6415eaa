// Tails are searched from the end of the file in growing blocks.
#include "worker/node/process/log_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "worker/node/process/log_access.h"

namespace mt::node {
namespace {

StatusOr<std::string> ReadAt(int fd, int64_t offset, int64_t size, const std::string& path) {
  std::string data(static_cast<size_t>(size), '\0');
  size_t have = 0;
  while (have < data.size()) {
    const ssize_t n =
        ::pread(fd, data.data() + have, data.size() - have, offset + static_cast<int64_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::ErrnoError(errno, "read " + path);
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  data.resize(have);
  return data;
}

// The offset at which the last `lines` lines of `data` begin.
size_t TailStart(const std::string& data, int lines) {
  if (lines <= 0) return data.size();
  size_t at = data.size();
  if (at > 0 && data[at - 1] == '\n') --at;  // the end of the last line
  for (int found = 0; at > 0; --at) {
    if (data[at - 1] == '\n' && ++found == lines) return at;
  }
  return 0;
}

}  // namespace

StatusOr<LogReader> LogReader::OpenTail(const std::string& path, int lines) {
  CloseLogToOthers(path);
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  const int64_t size = ::lseek(fd.get(), 0, SEEK_END);
  if (size < 0) return base::ErrnoError(errno, "seek " + path);
  // Reads growing blocks from the end until they hold enough lines.
  int64_t window = std::min<int64_t>(size, 16 << 10);
  for (;;) {
    ASSIGN_OR_RETURN(const std::string data, ReadAt(fd.get(), size - window, window, path));
    const size_t start = TailStart(data, lines);
    if (start > 0 || window == size || window == kMaxTailBytes) {
      return LogReader(std::move(fd), size - window + static_cast<int64_t>(start), path);
    }
    window = std::min({window * 4, size, kMaxTailBytes});
  }
}

StatusOr<LogReader> LogReader::OpenWhole(const std::string& path) { return OpenAt(path, 0); }

StatusOr<LogReader> LogReader::OpenAt(const std::string& path, int64_t offset) {
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  const int64_t size = ::lseek(fd.get(), 0, SEEK_END);
  if (size < 0) return base::ErrnoError(errno, "seek " + path);
  if (offset > size) {
    return base::Error(absl::StatusCode::kOutOfRange,
                       "{} has {} bytes, and not {}: it was begun anew; ask for it from its "
                       "beginning",
                       path, size, offset);
  }
  return LogReader(std::move(fd), offset, path);
}

bool LogReader::IsReplaced() const {
  struct stat mine {};
  struct stat there {};
  if (::fstat(fd_.get(), &mine) != 0 || ::stat(path_.c_str(), &there) != 0) return false;
  return mine.st_ino != there.st_ino || mine.st_dev != there.st_dev;
}

StatusOr<std::string> LogReader::Read(bool rest) {
  ASSIGN_OR_RETURN(std::string data, ReadAt(fd_.get(), offset_, kMaxChunkBytes, path_));
  const bool full = static_cast<int64_t>(data.size()) == kMaxChunkBytes;
  const size_t last = data.rfind('\n');
  if (last != std::string::npos && (full || !rest)) {
    data.resize(last + 1);
  } else if (!full && !rest) {
    data.clear();
  }
  offset_ += static_cast<int64_t>(data.size());
  return data;
}

std::vector<std::string> LastLines(const std::string& path, int count) {
  std::vector<std::string> lines;
  auto reader = LogReader::OpenTail(path, count);
  if (!reader.ok()) return lines;
  for (;;) {
    auto data = reader->Read(/*rest=*/true);
    if (!data.ok() || data->empty()) break;
    size_t begin = 0;
    while (begin < data->size()) {
      const size_t end = std::min(data->find('\n', begin), data->size());
      lines.push_back(data->substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (static_cast<int>(lines.size()) > count) lines.erase(lines.begin(), lines.end() - count);
  return lines;
}

}  // namespace mt::node
