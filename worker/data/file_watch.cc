// The file is read through a descriptor, so a file that is cut meanwhile gives a short read.
#include "worker/data/file_watch.h"

#include <algorithm>
#include <cerrno>
#include <unistd.h>
#include <vector>

#include "common/base/ids.h"
#include "common/base/log.h"

namespace mt::data {
namespace {

constexpr uint64_t kBlocks = 64;
constexpr uint64_t kBlockBytes = uint64_t{16} << 10;

// Calls take(begin, bytes) for each part of the sample of a file, as long as it returns true.
template <class Take>
void ForEachBlock(uint64_t size, const Take& take) {
  if (size <= kBlocks * kBlockBytes) {
    for (uint64_t at = 0; at < size; at += kBlockBytes) {
      if (!take(at, std::min(kBlockBytes, size - at))) return;
    }
    return;
  }
  const uint64_t last = size - kBlockBytes;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    // As quotient and rest, which do not overflow.
    const uint64_t begin = last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1);
    if (!take(begin, kBlockBytes)) return;
  }
}

// Reads all that was asked for; false with errno, or 0 at the end of the file.
bool ReadAt(const base::Fd& fd, uint64_t at, std::vector<char>* out) {
  size_t have = 0;
  while (have < out->size()) {
    const ssize_t n =
        ::pread(fd.get(), out->data() + have, out->size() - have, static_cast<off_t>(at + have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = 0;
      return false;
    }
    have += static_cast<size_t>(n);
  }
  return true;
}

// SampledDigest of the first `bytes` of a file; empty where it is shorter.
StatusOr<std::string> DigestOf(const base::Fd& fd, const std::string& path, int64_t bytes) {
  base::Hash128 hash;
  const auto size = static_cast<uint64_t>(bytes);
  hash.Add({reinterpret_cast<const char*>(&size), sizeof(size)});
  std::vector<char> block;
  bool all = true;
  int error = 0;
  ForEachBlock(size, [&](uint64_t begin, uint64_t count) {
    block.resize(count);
    all = ReadAt(fd, begin, &block);
    if (!all) error = errno;
    if (all) hash.Add({block.data(), block.size()});
    return all;
  });
  if (all) return hash.Take();
  if (error != 0) return base::ErrnoError(error, "read " + path);
  return std::string();
}

Status Cut(const std::string& path, int64_t before, int64_t now) {
  return base::DataLoss(
      "{}: {} bytes, but it had {} when this run opened it: it was cut under the run; put the file "
      "back, and the job goes on from its last checkpoint",
      path, now, before);
}

}  // namespace

std::string SampledDigest(std::string_view bytes) {
  base::Hash128 hash;
  const uint64_t size = bytes.size();
  hash.Add({reinterpret_cast<const char*>(&size), sizeof(size)});
  ForEachBlock(size, [&](uint64_t begin, uint64_t count) {
    hash.Add(bytes.substr(begin, count));
    return true;
  });
  return hash.Take();
}

Status FileWatch::Check() {
  const auto fd = OpenFile(args_.path, args_.open);
  if (!fd.ok()) {
    SayOnce(base::Message(fd.status()));
    return OkStatus();
  }
  const auto now = FactsOf(*fd, args_.path);
  if (!now.ok()) {
    SayOnce(base::Message(now.status()));
    return OkStatus();
  }
  if (*now == args_.facts && args_.facts.AreSettled()) return OkStatus();
  const bool same_file = now->device == args_.facts.device && now->inode == args_.facts.inode;
  if (same_file && !replaced_) return CheckMapped(*fd, *now);
  SayReplaced(*fd, *now);
  return OkStatus();
}

Status FileWatch::CheckMapped(const base::Fd& fd, const FileFacts& now) {
  if (now.bytes < mapped_bytes_) return Cut(args_.path, mapped_bytes_, now.bytes);
  const auto digest = DigestOf(fd, args_.path, mapped_bytes_);
  if (!digest.ok()) {
    SayOnce(base::Message(digest.status()));
    return OkStatus();
  }
  if (digest->empty()) return Cut(args_.path, mapped_bytes_, now.bytes);
  if (*digest != args_.digest && !args_.may_change) {
    return base::FailedPrecondition(
        "{}: written over under the run: a sample of its {} bytes is not what it was when the run "
        "opened it, so what was read since the last save is not known; nothing was saved of it. "
        "Put "
        "the data back, or set data.allow_changed, and go on from the last checkpoint; data are "
        "replaced by a file of another name, or by a rename",
        args_.path, mapped_bytes_);
  }
  if (*digest != args_.digest) {
    log::Warn("a data file was written over under the run, as data.allow_changed allows",
              {{"path", args_.path}, {"bytes", now.bytes}});
  } else if (now.bytes > args_.facts.bytes) {
    log::Warn("a data file has grown under the run: what follows is not read",
              {{"path", args_.path}, {"bytes", now.bytes}, {"read", mapped_bytes_}});
  }
  args_.digest = *digest;
  args_.facts = now;
  return OkStatus();
}

void FileWatch::SayReplaced(const base::Fd& fd, const FileFacts& now) {
  const auto digest = DigestOf(fd, args_.path, now.bytes);
  const bool same = digest.ok() && *digest == args_.digest;
  replaced_ = true;
  args_.facts = now;
  if (same) return;
  if (digest.ok()) args_.digest = *digest;
  log::Warn(
      "a data file was replaced by another: this attempt reads the old one to its end, the next "
      "start reads the new one",
      {{"path", args_.path}, {"bytes", now.bytes}});
}

void FileWatch::SayOnce(std::string_view what) {
  if (said_ == what) return;
  said_ = what;
  log::Warn("a data file cannot be looked at: this attempt reads what it has open",
            {{"path", args_.path}, {"why", what}});
}

}  // namespace mt::data
