// pwrite at known places, so that what was written is never a matter of the descriptor's position.
#include "worker/data/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace mt::data {
namespace {

constexpr size_t kGathered = size_t{1} << 18;

Status WriteFailed(const std::string& path, int64_t offset) {
  const int error = errno;
  Status status = base::ErrnoError(error, fmt::format("write {} at byte {}", path, offset));
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) return status;
  return base::Error(absl::StatusCode::kResourceExhausted, "{}; free space on that disk",
                     base::Message(status));
}

}  // namespace

StatusOr<OutputFile> OutputFile::Open(const std::string& path, int64_t keep_bytes) {
  OutputFile file;
  file.path_ = path;
  file.fd_ = base::Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.fd_) return base::ErrnoError(errno, "create " + path);
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return base::ErrnoError(errno, "stat " + path);
  if (info.st_size < keep_bytes) {
    return base::DataLoss("{}: {} bytes, at least {} were written before", path,
                          static_cast<int64_t>(info.st_size), keep_bytes);
  }
  RETURN_IF_ERROR(file.CutBack(keep_bytes));
  return file;
}

Status OutputFile::CutBack(int64_t bytes) {
  if (::ftruncate(fd(), bytes) != 0) return base::ErrnoError(errno, "cut " + path_);
  written_bytes_ = bytes;
  return OkStatus();
}

Status OutputFile::WriteAt(int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd(), bytes.data(), bytes.size(), offset);
    if (n < 0) {
      if (errno == EINTR) continue;
      return WriteFailed(path_, offset);
    }
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += n;
  }
  return OkStatus();
}

Status OutputFile::Append(std::string_view bytes) {
  if (bytes.size() < kGathered) {
    gathered_.append(bytes);
    return gathered_.size() < kGathered ? OkStatus() : Flush();
  }
  RETURN_IF_ERROR(Flush());
  RETURN_IF_ERROR(WriteAt(written_bytes_, bytes));
  written_bytes_ += static_cast<int64_t>(bytes.size());
  return OkStatus();
}

Status OutputFile::Flush() {
  RETURN_IF_ERROR(WriteAt(written_bytes_, gathered_));
  written_bytes_ += static_cast<int64_t>(gathered_.size());
  gathered_.clear();
  return OkStatus();
}

Status OutputFile::Sync() {
  RETURN_IF_ERROR(Flush());
  return ::fsync(fd()) == 0 ? OkStatus() : base::ErrnoError(errno, "fsync " + path_);
}

Status PublishPair(const std::string& bin, const std::string& idx, const std::string& prefix) {
  const std::string to_bin = prefix + ".bin";
  const std::string to_idx = prefix + ".idx";
  const std::string folder = std::filesystem::path(to_bin).parent_path().string();
  const std::string parent = folder.empty() ? "." : folder;
  // An old .idx must never be found beside a new .bin, so it is removed first.
  if (::unlink(to_idx.c_str()) == 0) {
    RETURN_IF_ERROR(base::SyncDir(parent));
  } else if (errno != ENOENT) {
    return base::ErrnoError(errno, "remove " + to_idx);
  }
  if (::rename(bin.c_str(), to_bin.c_str()) != 0) {
    return base::ErrnoError(errno, fmt::format("rename {} to {}", bin, to_bin));
  }
  if (::rename(idx.c_str(), to_idx.c_str()) != 0) {
    return base::ErrnoError(errno, fmt::format("rename {} to {}", idx, to_idx));
  }
  return base::SyncDir(parent);
}

}  // namespace mt::data
