// POSIX mmap with MAP_SHARED, so that all processes of a node read the same pages.
#include "worker/data/mapped_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace mt::data {
namespace {

void Unmap(const std::byte* data, size_t size) {
  if (data != nullptr) ::munmap(const_cast<std::byte*>(data), size);
}

// O_NONBLOCK, so that opening a named pipe returns and the pipe is refused.
StatusOr<base::Fd> OpenPlain(const std::string& path) {
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  return fd;
}

}  // namespace

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    Unmap(data_, size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() { Unmap(data_, size_); }

StatusOr<MappedFile> MappedFile::Open(const std::string& path, const base::FileOpener& open) {
  ASSIGN_OR_RETURN(const base::Fd fd, open ? open(path) : OpenPlain(path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return base::ErrnoError(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) {
    return base::InvalidArgument("{}: not a regular file", path);
  }
  MappedFile file;
  if (info.st_size == 0) return file;  // mmap refuses empty ranges
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return base::ErrnoError(errno, "map " + path);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

}  // namespace mt::data
