// The journal is opened first: it is replaced when steps have moved from it to the files of their
// jobs, which are read later, so that every step is in one of them or in both.
#include "daemon/backup/archive.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/backup/tar.h"
#include "daemon/store/store_folder.h"

namespace mt::daemon {
namespace {

constexpr int64_t kPieceBytes = 256 << 10;
constexpr char kJournal[] = "journal";

StatusOr<base::Fd> OpenFile(const std::string& path) {
  base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return base::ErrnoError(errno, "open " + path);
  return fd;
}

StatusOr<std::string> Header(const std::string& name, int64_t size) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return TarHeader({.name = name,
                    .size = size,
                    .time_s = std::chrono::duration_cast<std::chrono::seconds>(now).count()});
}

}  // namespace

std::string SumLine(uint64_t sum, const std::string& name) {
  return fmt::format("{:016x}  {}\n", sum, name);
}

StatusOr<BackupArchive> BackupArchive::Open(const std::string& database,
                                            const std::string& history) {
  namespace fs = std::filesystem;
  BackupArchive archive;
  std::error_code error;
  for (fs::recursive_directory_iterator it(history, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    const std::string name = kHistoryPrefix + fs::relative(it->path(), history, ignored).string();
    // Temporary files are written anew; what has no safe name is none of the coordinator's.
    if (!it->is_regular_file(ignored) || !SafeTarName(name) || name.find(".tmp.") != name.npos)
      continue;
    archive.sources_.push_back({.name = name, .path = it->path().string(), .fd = {}});
    if (it->path().filename() != kJournal) continue;
    ASSIGN_OR_RETURN(archive.sources_.back().fd, OpenFile(it->path().string()));
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return base::ErrnoError(error.value(), "list " + history);
  std::ranges::sort(archive.sources_, std::greater<>(), &Source::name);
  archive.sources_.push_back({.name = kDatabaseFile, .path = database, .fd = {}});
  return archive;
}

StatusOr<std::string> BackupArchive::Begin(Source source) {
  if (!source.fd) {
    auto opened = OpenFile(source.path);
    if (absl::IsNotFound(opened.status()) && source.name != kDatabaseFile) return std::string();
    ASSIGN_OR_RETURN(source.fd, std::move(opened));
  }
  struct stat info {};
  if (fstat(source.fd.get(), &info) != 0) return base::ErrnoError(errno, "stat " + source.path);
  open_ = std::move(source);
  size_ = left_ = info.st_size;
  sum_.Reset();
  return Header(open_.name, size_);
}

StatusOr<std::string> BackupArchive::Read() {
  std::string bytes(static_cast<size_t>(std::min(left_, kPieceBytes)), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = pread(open_.fd.get(), bytes.data() + filled, bytes.size() - filled,
                              static_cast<off_t>(size_ - left_) + static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoError(errno, "read " + open_.path);
    // An unfinished write at the end was taken back meanwhile: zeros say as little as it did.
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  sum_.Add(bytes);
  left_ -= static_cast<int64_t>(bytes.size());
  if (left_ > 0) return bytes;
  sums_ += SumLine(sum_.Get(), open_.name);
  open_.fd.Reset();
  return bytes + std::string(TarPadding(size_), '\0');
}

StatusOr<std::string> BackupArchive::End() {
  ended_ = true;
  ASSIGN_OR_RETURN(const std::string header,
                   Header(kSumsEntry, static_cast<int64_t>(sums_.size())));
  return header + sums_ + std::string(TarPadding(static_cast<int64_t>(sums_.size())), '\0') +
         TarEnd();
}

StatusOr<std::string> BackupArchive::Next() {
  while (!ended_) {
    if (open_.fd) {
      ASSIGN_OR_RETURN(std::string bytes, Read());
      if (!bytes.empty()) return bytes;
      continue;  // an empty file
    }
    if (sources_.empty()) return End();
    Source next = std::move(sources_.back());
    sources_.pop_back();
    ASSIGN_OR_RETURN(const std::string header, Begin(std::move(next)));
    if (!header.empty()) return header;
  }
  return std::string();
}

}  // namespace mt::daemon
