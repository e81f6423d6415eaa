// pwrite with EINTR handled, then fdatasync; the folder is synced when the file is created.
#include "daemon/telemetry/append_file.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/math.h"

namespace mt::daemon {

Status WriteDurably(int fd, int64_t offset, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return base::ErrnoError(errno, fmt::format("write {}", path));
    bytes.remove_prefix(static_cast<size_t>(put));
    offset += put;
  }
  if (fdatasync(fd) != 0) return base::ErrnoError(errno, fmt::format("sync {}", path));
  return OkStatus();
}

Status AppendFile::Open() {
  const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return base::ErrnoError(errno, fmt::format("open {}", path_));
  base::Fd opened(fd);
  RETURN_IF_ERROR(base::SyncDir(path_.substr(0, path_.rfind('/'))));
  ASSIGN_OR_RETURN(const int64_t size, base::FileSize(path_));
  end_ = base::RoundUp(size, align_);
  fd_ = std::move(opened);
  return OkStatus();
}

Status AppendFile::Append(std::string_view bytes) {
  if (!fd_) RETURN_IF_ERROR(Open());
  RETURN_IF_ERROR(WriteDurably(fd_.get(), end_, bytes, path_));
  end_ += static_cast<int64_t>(bytes.size());
  return OkStatus();
}

Status AppendFile::Replace(std::string_view bytes) {
  RETURN_IF_ERROR(base::WriteFileAtomic(path_, bytes, 0600));
  fd_.Reset(open(path_.c_str(), O_WRONLY | O_CLOEXEC));  // if this fails, the next Append opens it
  end_ = static_cast<int64_t>(bytes.size());
  return OkStatus();
}

}  // namespace mt::daemon
