// A whole file mapped read-only. The mapping outlives the descriptor and keeps the size that the
// file had at Open, so users check every offset against size() before they read; and since somebody
// may cut the file meanwhile, they ask lost() after they have read, and before they believe it.
// Immutable and thread-safe; unmapped on destruction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/files.h"
#include "common/base/status.h"
#include "worker/data/mapping_guard.h"

namespace mt::data {

// What tells a file from another, and from itself after a change; of fstat.
struct FileFacts {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // also where the time of modification was set back
  int64_t seen_ns = 0;     // when it was asked: no part of the file
  friend bool operator==(const FileFacts& a, const FileFacts& b) {
    return a.device == b.device && a.inode == b.inode && a.bytes == b.bytes &&
           a.modified_ns == b.modified_ns && a.changed_ns == b.changed_ns;
  }
  // False where a change right afterwards may have left the times as they are, whose steps are
  // those of the file system.
  bool AreSettled() const {
    constexpr int64_t kCoarsestStepNs = 2'000'000'000;
    return seen_ns - std::max(modified_ns, changed_ns) > kCoarsestStepNs;
  }
};
// Errors name the path; kInvalidArgument for anything but a regular file.
StatusOr<FileFacts> FactsOf(const base::Fd& fd, const std::string& path);
// Opens a file to be mapped or looked at: by `open` or, where that is empty, so that a named pipe
// does not block.
StatusOr<base::Fd> OpenFile(const std::string& path, const base::FileOpener& open);

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        guard_(std::exchange(other.guard_, nullptr)),
        facts_(other.facts_) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // Maps the file. Errors: those of `open`, the errno of mmap with the path; kInvalidArgument for
  // anything but a regular file. An empty file has size 0 and no mapping.
  static StatusOr<MappedFile> Open(const std::string& path, const base::FileOpener& open = {});

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Of the file at Open.
  const FileFacts& facts() const { return facts_; }
  // True if a read has met bytes that are gone, for which zeros were read.
  bool lost() const { return guard_ != nullptr && IsLost(*guard_); }
  // kDataLoss with the path if lost().
  Status CheckWhole(const std::string& path) const;
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  GuardedRange* guard_ = nullptr;  // nullptr without a mapping
  FileFacts facts_;
};

}  // namespace mt::data
