// POSIX mmap with MAP_SHARED, so that all processes of a node read the same pages.
#include "worker/data/mapped_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/base/clock.h"

namespace mt::data {
namespace {

void Unmap(const std::byte* data, size_t size, GuardedRange* guard) {
  if (data == nullptr) return;
  ForgetMapping(guard);
  ::munmap(const_cast<std::byte*>(data), size);
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

StatusOr<base::Fd> OpenFile(const std::string& path, const base::FileOpener& open) {
  if (open) return open(path);
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  return fd;
}

StatusOr<FileFacts> FactsOf(const base::Fd& fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return base::ErrnoError(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) {
    return base::InvalidArgument("{}: not a regular file", path);
  }
  return FileFacts{.device = info.st_dev,
                   .inode = info.st_ino,
                   .bytes = info.st_size,
                   .modified_ns = Nanoseconds(info.st_mtim),
                   .changed_ns = Nanoseconds(info.st_ctim),
                   .seen_ns = base::ToUnixMicros(base::Clock::Real()->WallNow()) * 1000};
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    Unmap(data_, size_, guard_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    guard_ = std::exchange(other.guard_, nullptr);
    facts_ = other.facts_;
  }
  return *this;
}

MappedFile::~MappedFile() { Unmap(data_, size_, guard_); }

Status MappedFile::CheckWhole(const std::string& path) const {
  if (!lost()) return OkStatus();
  return base::DataLoss(
      "{}: a part of its {} bytes could not be read: the file was cut meanwhile, or its storage "
      "failed",
      path, size_);
}

StatusOr<MappedFile> MappedFile::Open(const std::string& path, const base::FileOpener& open) {
  ASSIGN_OR_RETURN(const base::Fd fd, OpenFile(path, open));
  MappedFile file;
  ASSIGN_OR_RETURN(file.facts_, FactsOf(fd, path));
  if (file.facts_.bytes == 0) return file;  // mmap refuses empty ranges
  const auto size = static_cast<size_t>(file.facts_.bytes);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return base::ErrnoError(errno, "map " + path);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  file.guard_ = GuardMapping(file.data_, size);
  return file;
}

}  // namespace mt::data
