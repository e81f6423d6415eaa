// Writes header and image to a temporary file, maps it, fills in the digest, syncs and renames. A
// file found in the cache is used only if its size, its header and the digest of its content match.
#include "worker/data/cache_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
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

constexpr auto kHeaderBytes = static_cast<int64_t>(kCacheHeaderBytes);
constexpr size_t kMagicBytes = 7;
constexpr size_t kFieldsAt = 16, kFieldsBytes = 24;
constexpr size_t kImageBytesAt = 40;
constexpr size_t kKeyAt = 48;
constexpr size_t kDigestAt = 80;
constexpr size_t kDigestBytes = 32;
constexpr int64_t kOwnerBytes = 128;  // behind the image
using Header = std::array<char, kCacheHeaderBytes>;

// The header of FORMAT.md, with a zero digest: the digest is written when the image is complete.
Header MakeHeader(const CacheFileArgs& args) {
  Header header{};
  const auto put = [&](size_t at, auto value) { std::memcpy(&header[at], &value, sizeof(value)); };
  const auto put_text = [&](size_t at, std::string_view text) {
    std::memcpy(&header[at], text.data(), text.size());
  };
  CHECK(args.magic.size() == kMagicBytes && args.fields.size() <= kFieldsBytes) << args.what;
  CHECK_EQ(args.key.size(), size_t{32});
  put_text(0, args.magic);
  put(8, uint32_t{1});
  put(12, static_cast<uint32_t>(kHeaderBytes));
  put_text(kFieldsAt, args.fields);
  put(kImageBytesAt, args.image_bytes);
  put_text(kKeyAt, args.key);
  return header;
}

int64_t ImageBytes(const Header& header) {
  int64_t bytes = 0;
  std::memcpy(&bytes, &header[kImageBytesAt], sizeof(bytes));
  return bytes;
}

std::string ImageDigest(const MappedFile& file, int64_t image_bytes) {
  return base::Hash128Hex(file.view().substr(kHeaderBytes, static_cast<size_t>(image_bytes)));
}

// OK, or kDataLoss with the reason why the file cannot be used. The owner's name is no matter, nor
// whether there is one.
Status Verify(const MappedFile& file, Header expected) {
  const int64_t image_bytes = ImageBytes(expected);
  const auto size = static_cast<int64_t>(file.size());
  const int64_t nameless = kHeaderBytes + image_bytes;
  if (size != nameless && size != nameless + kOwnerBytes)
    return base::DataLoss("{} bytes instead of {}", size, nameless + kOwnerBytes);
  std::memcpy(&expected[kDigestAt], ImageDigest(file, image_bytes).data(), kDigestBytes);
  if (file.lost()) return base::DataLoss("a part could not be read");
  if (std::memcmp(file.data(), expected.data(), expected.size()) != 0) {
    return base::DataLoss("header or digest do not match");
  }
  return OkStatus();
}

// Writes the image to a file. Keeps references to descriptor and path.
class FileSink final : public ImageSink {
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

// Cut where it is longer, padded with zeros.
std::string OwnerText(std::string owner) {
  owner.resize(static_cast<size_t>(kOwnerBytes));
  return owner;
}

// Writes header, image and owner to the temporary file and returns its mapping, which stays valid
// after a rename.
StatusOr<MappedFile> WriteFile(const base::Fd& fd, const std::string& temporary,
                               const Header& header, const std::string& owner,
                               const std::function<Status(ImageSink*)>& write) {
  FileSink sink(fd, temporary);
  RETURN_IF_ERROR(sink.Append(header.data(), header.size()));
  RETURN_IF_ERROR(write(&sink));
  RETURN_IF_ERROR(sink.Append(OwnerText(owner).data(), static_cast<size_t>(kOwnerBytes)));
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(temporary));
  const int64_t image_bytes = ImageBytes(header);
  const int64_t expected = kHeaderBytes + image_bytes + kOwnerBytes;
  if (static_cast<int64_t>(file.size()) != expected)
    return base::DataLoss("{}: {} bytes instead of {}", temporary, file.size(), expected);
  const std::string digest = ImageDigest(file, image_bytes);
  if (::pwrite(fd.get(), digest.data(), kDigestBytes, kDigestAt) != ssize_t{kDigestBytes}) {
    return base::ErrnoError(errno, "write " + temporary);
  }
  if (::fchmod(fd.get(), 0644) != 0) return base::ErrnoError(errno, "chmod " + temporary);
  if (::fsync(fd.get()) != 0) return base::ErrnoError(errno, "fsync " + temporary);
  return file;
}

// Makes the file under a temporary name in the same folder and renames it to `path`.
StatusOr<MappedFile> MakeFile(const std::string& path, const Header& header,
                              const std::string& owner,
                              const std::function<Status(ImageSink*)>& write) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  RETURN_IF_ERROR(base::MakeDirs(folder));
  std::string temporary = path + ".tmp.XXXXXX";
  const base::Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return base::ErrnoError(errno, "create " + temporary);
  StatusOr<MappedFile> file = WriteFile(fd, temporary, header, owner, write);
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

// The cache writes no links: one in it is refused, and replaced by the file that is made anew.
StatusOr<base::Fd> OpenNoLink(const std::string& path) {
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  return fd;
}

// Names in the log stay as they are once they have been printed: those of sample indices are older.
void SayWaiting(const std::string& folder, std::string_view what) {
  if (what == kSampleIndex) {
    log::Info("another process builds a sample index, waiting for it", {{"folder", folder}});
  } else {
    log::Info("another process fills the data cache, waiting for it",
              {{"for", what}, {"folder", folder}});
  }
}

void SayDamaged(const std::string& path, std::string_view what, const Status& why) {
  if (what == kSampleIndex) {
    log::Warn("sample index cache is damaged, building it anew",
              {{"path", path}, {"why", base::Message(why)}});
  } else {
    log::Warn("a file of the data cache is damaged, making it anew",
              {{"what", what}, {"path", path}, {"why", base::Message(why)}});
  }
}

// Held while a file is made, so that one rank of a node makes it and the others map what it wrote:
// the folder's own lock, which a maker that dies gives back. Empty where there is none: then
// several make the same bytes.
base::Fd LockFolder(const std::string& folder, std::string_view what) {
  base::Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  SayWaiting(folder, what);
  while (::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return {};
  }
  return fd;
}

// The file of the cache, mapped; kNotFound where there is none or it is damaged.
StatusOr<MappedFile> OpenCached(const std::string& path, const Header& header,
                                std::string_view what, bool log_damage) {
  if (!base::Exists(path)) return base::NotFound("no {}", path);
  StatusOr<MappedFile> file = MappedFile::Open(path, OpenNoLink);
  const Status usable = file.ok() ? Verify(*file, header) : file.status();
  if (!usable.ok()) {
    if (log_damage) {
      SayDamaged(path, what, usable);
    }
    return base::NotFound("{} is damaged", path);
  }
  // The time of its last use, by which the agent keeps the cache within its size.
  (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return file;
}

}  // namespace

std::string CachePath(const DataCache& cache, const std::string& key) {
  return base::JoinPath(cache.folder, key + ".mtindex");
}

StatusOr<MappedFile> LoadOrMakeFile(const DataCache& cache, const CacheFileArgs& args,
                                    const std::function<Status(ImageSink*)>& write) {
  const std::string path = CachePath(cache, args.key);
  const Header header = MakeHeader(args);
  StatusOr<MappedFile> file = OpenCached(path, header, args.what, /*log_damage=*/true);
  if (file.ok()) return file;
  (void)base::MakeDirs(cache.folder);  // else MakeFile says why
  const base::Fd lock = LockFolder(cache.folder, args.what);
  // By who held the lock before.
  file = OpenCached(path, header, args.what, /*log_damage=*/false);
  if (file.ok()) return file;
  return MakeFile(path, header, cache.owner, write);
}

}  // namespace mt::data
