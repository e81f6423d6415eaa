// Whole files: read, write atomically, make durable. Functions block and are thread-safe. Every
// error names the system call's purpose and the path, with the codes of ErrnoError
// (common/base/status.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"

namespace mt::base {

// Owns a file descriptor and closes it; errors of close(2) are ignored. Not thread-safe.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { Reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Gives up ownership and returns the descriptor.
  int Release() { return std::exchange(fd_, -1); }
  // Closes the current descriptor and takes ownership of `fd`.
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Opens a file to be read; errors name the path. Empty: open(2), which follows every link. Readers
// of files that a job names are given spec::BelowRoot (common/spec/roots.h).
using FileOpener = std::function<StatusOr<Fd>(const std::string& path)>;
StatusOr<Fd> OpenToRead(const std::string& path, const FileOpener& open);

// The whole content. The file may grow while it is read, and may lie in /proc (size 0).
StatusOr<std::string> ReadFile(const std::string& path, const FileOpener& open = {});

// Writes a temporary file beside `path`, then fsync, rename, and fsync of the folder: after OK the
// content survives a power loss. On error no temporary remains and the old file is untouched,
// except where only the last fsync (of the folder) failed: then the new file is in place but may
// not survive. `mode` holds the file's permissions, whatever the umask.
Status WriteFileAtomic(const std::string& path, std::string_view content, unsigned mode = 0644);

// Creates the folder and its parents; OK where it exists already. Those that it creates survive a
// power loss.
Status MakeDirs(const std::string& path);
// Makes the entries of the folder (creations, renames, removals) durable.
Status SyncDir(const std::string& path);
// True where access(2) finds `path`; false for any error as well.
bool Exists(const std::string& path);
StatusOr<int64_t> FileSize(const std::string& path);
// Free bytes for unprivileged users on the file system that holds `path`.
StatusOr<int64_t> FreeBytes(const std::string& path);
// Joins with one '/': "a" and "b" give "a/b"; an absolute b wins; where one is empty the other is
// returned.
std::string JoinPath(std::string_view a, std::string_view b);

}  // namespace mt::base
