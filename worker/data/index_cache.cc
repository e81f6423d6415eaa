// Writes header and image to a temporary file, maps it, fills in the digest, syncs and renames. A
// file found in the cache is used only if its size, its header and the digest of its content match.
#include "worker/data/index_cache.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/log.h"

namespace mt::data {
namespace {

constexpr int64_t kHeaderBytes = 128;
constexpr size_t kDigestAt = 80;
constexpr size_t kDigestBytes = 32;
using Header = std::array<char, kHeaderBytes>;

std::string RangeText(const SequenceRange& range) {
  std::string text = fmt::format("{} {}", range.begin, range.end);
  if (range.skip_front > 0 || range.skip_back > 0)
    text += fmt::format(" without {} {}", range.skip_front, range.skip_back);
  return text;
}

// Hash of everything that determines the arrays. The number of samples asked is not part of it, so
// runs of different length that build the same index share a file.
std::string CacheKey(const IndexedDataset& data, const IndexRequest& request,
                     const IndexPlan& plan) {
  return base::Hash128Hex(fmt::format(
      "megatrain sample index 1\nidx {}\nrange {}\nseq_length {}\nepochs {}\nseparate {}\n"
      "samples {}\nseed {}\n",
      data.idx_digest(), RangeText(request.range), request.seq_length, plan.epochs,
      plan.separate_last_epoch, plan.samples, request.seed));
}

std::string PathOf(const std::string& cache_dir, const std::string& key) {
  return base::JoinPath(cache_dir, key + ".mtindex");
}

// The header of FORMAT.md, with a zero digest: the digest is written when the image is complete.
Header MakeHeader(const IndexLayout& layout, const std::string& key) {
  Header header{};
  const auto put = [&](size_t at, auto value) { std::memcpy(&header[at], &value, sizeof(value)); };
  std::memcpy(header.data(), "MTINDEX", 8);
  put(8, uint32_t{1});
  put(12, uint32_t{kHeaderBytes});
  put(16, layout.num_positions);
  put(24, layout.num_samples);
  put(32, static_cast<uint8_t>(layout.wide_starts ? 8 : 4));
  put(33, static_cast<uint8_t>(layout.wide_shuffle ? 8 : 4));
  put(40, layout.total_bytes);
  CHECK_EQ(key.size(), size_t{32});
  std::memcpy(&header[48], key.data(), key.size());
  return header;
}

std::string ImageDigest(const MappedFile& file) {
  return base::Hash128Hex(file.view().substr(kHeaderBytes));
}

// OK, or kDataLoss with the reason why the file cannot be used.
Status Verify(const MappedFile& file, Header expected) {
  int64_t image_bytes = 0;
  std::memcpy(&image_bytes, &expected[40], sizeof(image_bytes));
  if (static_cast<int64_t>(file.size()) != kHeaderBytes + image_bytes) {
    return base::DataLoss("{} bytes instead of {}", file.size(), kHeaderBytes + image_bytes);
  }
  std::memcpy(&expected[kDigestAt], ImageDigest(file).data(), kDigestBytes);
  if (file.lost()) return base::DataLoss("a part could not be read");
  if (std::memcmp(file.data(), expected.data(), expected.size()) != 0) {
    return base::DataLoss("header or digest do not match");
  }
  return OkStatus();
}

// Writes the image to a file. Keeps references to descriptor and path.
class FileSink final : public IndexSink {
 public:
  FileSink(const base::Fd& fd, const std::string& path) : fd_(fd), path_(path) {}
  Status Append(const void* data, size_t bytes) override {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_.get(), from, bytes);
      if (n < 0) {
        if (errno == EINTR) continue;
        return base::ErrnoError(errno, "write " + path_);
      }
      from += n;
      bytes -= static_cast<size_t>(n);
    }
    return OkStatus();
  }

 private:
  const base::Fd& fd_;
  const std::string& path_;
};

// Writes header and image to the temporary file and returns its mapping, which stays valid after a
// rename.
StatusOr<MappedFile> WriteImage(const base::Fd& fd, const std::string& temporary, Header header,
                                const std::function<Status(IndexSink*)>& build) {
  FileSink sink(fd, temporary);
  RETURN_IF_ERROR(sink.Append(header.data(), header.size()));
  RETURN_IF_ERROR(build(&sink));
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(temporary));
  const std::string digest = ImageDigest(file);
  if (::pwrite(fd.get(), digest.data(), kDigestBytes, kDigestAt) != ssize_t{kDigestBytes}) {
    return base::ErrnoError(errno, "write " + temporary);
  }
  if (::fchmod(fd.get(), 0644) != 0) return base::ErrnoError(errno, "chmod " + temporary);
  if (::fsync(fd.get()) != 0) return base::ErrnoError(errno, "fsync " + temporary);
  return file;
}

// Builds the file under a temporary name in the same folder and renames it to `path`.
StatusOr<MappedFile> BuildFile(const std::string& path, const Header& header,
                               const std::function<Status(IndexSink*)>& build) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  RETURN_IF_ERROR(base::MakeDirs(folder));
  std::string temporary = path + ".tmp.XXXXXX";
  const base::Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "create " + temporary);
  StatusOr<MappedFile> file = WriteImage(fd, temporary, header, build);
  if (file.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    file = base::ErrnoError(errno, "rename " + temporary + " to " + path);
  }
  if (!file.ok()) {
    ::unlink(temporary.c_str());
    return file;
  }
  RETURN_IF_ERROR(base::SyncDir(folder));
  return file;
}

// The cache writes no links: one in it is refused, and replaced by the index that is built anew.
StatusOr<base::Fd> OpenNoLink(const std::string& path) {
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  return fd;
}

// Held while an index is built, so that one rank of a node builds it and the others map what it
// wrote: the folder's own lock, which a builder that dies gives back. Empty where there is none:
// then several build the same bytes.
base::Fd LockFolder(const std::string& folder) {
  base::Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  log::Info("another process builds a sample index, waiting for it", {{"folder", folder}});
  while (::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return {};
  }
  return fd;
}

// The file of the cache, mapped; kNotFound where there is none or it is damaged.
StatusOr<MappedFile> OpenCached(const std::string& path, const Header& header, bool log_damage) {
  if (!base::Exists(path)) return base::NotFound("no {}", path);
  StatusOr<MappedFile> file = MappedFile::Open(path, OpenNoLink);
  const Status usable = file.ok() ? Verify(*file, header) : file.status();
  if (!usable.ok()) {
    if (log_damage) {
      log::Warn("sample index cache is damaged, building it anew",
                {{"path", path}, {"why", base::Message(usable)}});
    }
    return base::NotFound("{} is damaged", path);
  }
  // The time of its last use, by which the agent keeps the cache within its size.
  (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return file;
}

}  // namespace

StatusOr<std::string> IndexCachePath(const IndexedDataset& data, const IndexRequest& request,
                                     const std::string& cache_dir) {
  ASSIGN_OR_RETURN(const IndexPlan plan, PlanIndex(request, CountTokens(data, request.range)));
  return PathOf(cache_dir, CacheKey(data, request, plan));
}

StatusOr<std::unique_ptr<SampleIndex>> LoadOrBuildIndex(const IndexedDataset& data,
                                                        const IndexRequest& request,
                                                        const std::string& cache_dir) {
  if (cache_dir.empty()) return BuildIndexInMemory(data, request);
  ASSIGN_OR_RETURN(const IndexPlan plan, PlanIndex(request, CountTokens(data, request.range)));
  const IndexLayout layout = MakeIndexLayout(request, plan);
  const std::string key = CacheKey(data, request, plan);
  const std::string path = PathOf(cache_dir, key);
  const Header header = MakeHeader(layout, key);
  const auto share = [&](StatusOr<MappedFile> file) {
    return std::make_unique<SampleIndex>(plan, layout, std::move(file).value(), kHeaderBytes);
  };
  StatusOr<MappedFile> file = OpenCached(path, header, /*log_damage=*/true);
  if (file.ok()) return share(std::move(file));
  (void)base::MakeDirs(cache_dir);  // else BuildFile says why
  const base::Fd lock = LockFolder(cache_dir);
  file = OpenCached(path, header, /*log_damage=*/false);  // by who held the lock before
  if (file.ok()) return share(std::move(file));
  file = BuildFile(path, header, [&](IndexSink* sink) -> Status {
    RETURN_IF_ERROR(BuildIndex(data, request, plan, sink));
    return data.Intact();
  });
  if (file.ok()) return share(std::move(file));
  log::Warn("sample index cache cannot be written, keeping the index in memory",
            {{"path", path}, {"why", base::Message(file.status())}});
  return BuildIndexInMemory(data, request);
}

}  // namespace mt::data
