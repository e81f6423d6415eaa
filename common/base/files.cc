// System calls with EINTR handled where it occurs (read, write), and every errno turned into a
// Status that names the path.
#include "common/base/files.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

namespace mt::base {
namespace {

Status WriteAll(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "write " + path);
    }
    content.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

std::string Parent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

void Fd::Reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

StatusOr<Fd> OpenToRead(const std::string& path, const FileOpener& open) {
  if (open) return open(path);
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoError(errno, "open " + path);
  return fd;
}

StatusOr<std::string> ReadFile(const std::string& path, const FileOpener& open) {
  ASSIGN_OR_RETURN(const Fd fd, OpenToRead(path, open));
  std::string out;
  struct stat info {};
  if (::fstat(fd.get(), &info) == 0 && info.st_size > 0)
    out.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof(buffer));
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "read " + path);
    }
    if (n == 0) return out;
    out.append(buffer, static_cast<size_t>(n));
  }
}

Status WriteFileAtomic(const std::string& path, std::string_view content, unsigned mode) {
  std::string temporary = path + ".tmp.XXXXXX";
  Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return ErrnoError(errno, "create " + temporary);
  Status status = WriteAll(fd.get(), content, temporary);
  if (status.ok() && ::fchmod(fd.get(), mode) != 0)
    status = ErrnoError(errno, "chmod " + temporary);
  if (status.ok() && ::fsync(fd.get()) != 0) status = ErrnoError(errno, "fsync " + temporary);
  fd.Reset();
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoError(errno, "rename " + temporary + " to " + path);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncDir(Parent(path));
}

Status MakeDirs(const std::string& path) {
  std::vector<std::string> parents;  // of the folders that are missing, the innermost first
  for (std::string at = path; !Exists(at) && at != "."; at = parents.back())
    parents.push_back(Parent(at));
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoError(error.value(), "create folder " + path);
  for (auto parent = parents.rbegin(); parent != parents.rend(); ++parent) {
    RETURN_IF_ERROR(SyncDir(*parent));
  }
  return OkStatus();
}

Status SyncDir(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return ErrnoError(errno, "open folder " + path);
  if (::fsync(fd.get()) != 0) return ErrnoError(errno, "fsync folder " + path);
  return OkStatus();
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

StatusOr<int64_t> FileSize(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoError(errno, "stat " + path);
  return static_cast<int64_t>(info.st_size);
}

StatusOr<int64_t> FreeBytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return ErrnoError(errno, "statvfs " + path);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

std::string JoinPath(std::string_view a, std::string_view b) {
  if (a.empty() || (!b.empty() && b.front() == '/')) return std::string(b);
  if (b.empty()) return std::string(a);
  std::string out(a);
  if (out.back() != '/') out.push_back('/');
  out.append(b);
  return out;
}

}  // namespace mt::base
