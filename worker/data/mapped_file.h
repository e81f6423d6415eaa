// A whole file mapped read-only. The mapping outlives the descriptor and keeps the size that the
// file had at Open, so users check every offset against size() before they read. Immutable and
// thread-safe; unmapped on destruction.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/files.h"
#include "common/base/status.h"

namespace mt::data {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // Maps the file. Errors: those of `open`, the errno of mmap with the path; kInvalidArgument for
  // anything but a regular file. An empty file has size 0 and no mapping.
  static StatusOr<MappedFile> Open(const std::string& path, const base::FileOpener& open = {});

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mt::data
