// Files, whole: read, write atomically, sync. Every error names the path. Blocking; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"

namespace mt::base {

// Owns a file descriptor; closes it.
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
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

StatusOr<std::string> ReadFile(const std::string& path);

// Temporary file beside `path`, fsync, rename, fsync of the folder: after OK the content survives
// power loss; on error the old file is untouched and no temporary remains.
// `mode` are the file's permissions.
Status WriteFileAtomic(const std::string& path, std::string_view content, unsigned mode = 0644);

// Creates the folder and its parents; OK where it exists already.
Status MakeDirs(const std::string& path);
// Makes entries of the folder (creations, renames) durable.
Status SyncDir(const std::string& path);
bool Exists(const std::string& path);
StatusOr<int64_t> FileSize(const std::string& path);
// Free bytes for unprivileged users on the file system of `path`.
StatusOr<int64_t> FreeBytes(const std::string& path);
// a/b; an absolute b wins; empty a gives b.
std::string JoinPath(std::string_view a, std::string_view b);

}  // namespace mt::base
