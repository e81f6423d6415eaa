// Everything is unpacked and verified in a folder within the state folder, which is a state folder
// itself; its parts are then moved up, the database last.
#include "daemon/backup/restore.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/base/files.h"
#include "common/control/epoch.h"
#include "daemon/backup/archive.h"
#include "daemon/backup/tar.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/store/store_check.h"
#include "daemon/store/store_folder.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;
namespace v1 = megatrain::v1;

constexpr char kUnpacked[] = "restore.tmp";
constexpr char kClusterRow[] = "self";  // key of the cluster's row
constexpr size_t kUnpackBytes = 256 << 10;
constexpr int64_t kMostSums = 64 << 20;

// What may lie in a folder that counts as empty: an earlier attempt's and the file system's own.
Status CheckEmpty(const std::string& state_dir) {
  static const std::set<std::string> allowed = {kUnpacked, "coordinator.lock", "lost+found"};
  RETURN_IF_ERROR(CheckNoStore(state_dir));
  std::error_code error;
  for (fs::directory_iterator it(state_dir, error), end; !error && it != end; it.increment(error)) {
    if (allowed.contains(it->path().filename().string())) continue;
    return base::FailedPrecondition(
        "{} is not empty ({} is in it); move the folder aside, then restore into a new one",
        state_dir, it->path().filename().string());
  }
  return OkStatus();
}

// Reads an archive from its beginning.
class ArchiveReader {
 public:
  static StatusOr<ArchiveReader> Open(const std::string& path) {
    base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return base::ErrnoError(errno, "open " + path);
    return ArchiveReader(std::move(fd), path);
  }
  // Exactly `bytes` bytes.
  StatusOr<std::string> Read(size_t bytes) {
    std::string out(bytes, '\0');
    for (size_t filled = 0; filled < bytes;) {
      const ssize_t got = read(fd_.get(), out.data() + filled, bytes - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return base::ErrnoError(errno, "read " + path_);
      if (got == 0) return base::DataLoss("{} ends too early: it is not a whole backup", path_);
      filled += static_cast<size_t>(got);
    }
    return out;
  }
  const std::string& path() const { return path_; }

 private:
  ArchiveReader(base::Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  base::Fd fd_;
  std::string path_;
};

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return base::ErrnoError(errno, "write " + path);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return OkStatus();
}

// Unpacks one file, durably; returns its checksum.
StatusOr<uint64_t> UnpackFile(ArchiveReader* reader, const TarEntry& entry,
                              const std::string& path) {
  RETURN_IF_ERROR(base::MakeDirs(fs::path(path).parent_path().string()));
  const base::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return base::ErrnoError(errno, "create " + path);
  RunningSum sum;
  for (int64_t left = entry.size; left > 0;) {
    ASSIGN_OR_RETURN(
        const std::string bytes,
        reader->Read(static_cast<size_t>(std::min(left, static_cast<int64_t>(kUnpackBytes)))));
    RETURN_IF_ERROR(WriteAll(fd.get(), bytes, path));
    sum.Add(bytes);
    left -= static_cast<int64_t>(bytes.size());
  }
  if (fsync(fd.get()) != 0) return base::ErrnoError(errno, "fsync " + path);
  RETURN_IF_ERROR(reader->Read(TarPadding(entry.size)).status());
  return sum.Get();
}

// The coordinator's own files only, whatever else a tar archive could bring.
Status CheckName(const ArchiveReader& reader, const std::string& name) {
  if (name == kDatabaseFile || name.starts_with(kHistoryPrefix)) return OkStatus();
  return base::DataLoss("{}: '{}' is not part of a backup of the coordinator", reader.path(), name);
}

// Unpacks all files and holds them against the checksums at the end. Returns their number.
StatusOr<int64_t> Unpack(ArchiveReader* reader, const std::string& folder) {
  std::string found;
  int64_t files = 0;
  bool database = false;
  for (;;) {
    ASSIGN_OR_RETURN(const std::string block, reader->Read(kTarBlock));
    const auto header = ParseTarHeader(block);
    if (!header.ok()) return base::Annotate(header.status(), reader->path());
    const std::optional<TarEntry>& entry = *header;
    if (!entry)
      return base::DataLoss("{} has no {}: it is not a whole backup", reader->path(), kSumsEntry);
    const TarEntry& file = *entry;
    if (file.name == kSumsEntry) {
      if (file.size > kMostSums || file.size != static_cast<int64_t>(found.size()))
        return base::DataLoss("{}: {} does not list what is in it", reader->path(), kSumsEntry);
      ASSIGN_OR_RETURN(const std::string sums, reader->Read(static_cast<size_t>(file.size)));
      if (sums != found)
        return base::DataLoss("{} is damaged: a file's checksum does not match", reader->path());
      if (!database) return base::DataLoss("{} has no {}", reader->path(), kDatabaseFile);
      return files;
    }
    RETURN_IF_ERROR(CheckName(*reader, file.name));
    ASSIGN_OR_RETURN(const uint64_t sum,
                     UnpackFile(reader, file, base::JoinPath(folder, file.name)));
    found += SumLine(sum, file.name);
    database |= file.name == kDatabaseFile;
    ++files;
  }
}

// Verifies the unpacked store and raises its term.
Status Declare(const std::string& folder, Restored* out) {
  ASSIGN_OR_RETURN(const StoreReport report,
                   CheckDatabase(base::JoinPath(folder, kDatabaseFile), /*whole=*/true));
  if (!report.damages.empty())
    return base::DataLoss("the backup's store is damaged: {}", report.damages.front());
  out->rows = report.rows;
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteStore> store, SqliteStore::Open(folder));
  v1::StoredCluster cluster;
  RETURN_IF_ERROR(
      store->ForEach(Table::kCluster, [&cluster](std::string_view key, std::string_view value) {
        const bool parsed = key != kClusterRow ||
                            cluster.ParseFromArray(value.data(), static_cast<int>(value.size()));
        return parsed ? OkStatus() : base::DataLoss("the row cannot be read");
      }));
  cluster.set_term(cluster.term() + control::kRestoreTerms);
  cluster.set_restored_term(cluster.term());
  cluster.set_restore_settled(false);
  out->cluster_id = cluster.cluster_id();
  out->term = cluster.term();
  return store->Commit({{Table::kCluster, kClusterRow, cluster.SerializeAsString()}});
}

Status MoveUp(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    return base::ErrnoError(errno, fmt::format("rename {} to {}", from, to));
  return base::SyncDir(fs::path(to).parent_path().string());
}

// The history first: a folder without a database is never taken for a store.
Status PutInPlace(const std::string& folder, const std::string& state_dir) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) RETURN_IF_ERROR(base::SyncDir(entry.path().string()));
  }
  const std::string database = base::JoinPath(folder, kDatabaseFile);
  if (base::Exists(database + "-wal"))
    return base::Internal("{}: its write-ahead log was not taken in", database);
  const std::string history = base::JoinPath(folder, "history");
  if (base::Exists(history)) RETURN_IF_ERROR(MoveUp(history, base::JoinPath(state_dir, "history")));
  return MoveUp(database, base::JoinPath(state_dir, kDatabaseFile));
}

StatusOr<Restored> RestoreInto(ArchiveReader* reader, const std::string& folder,
                               const std::string& state_dir) {
  Restored out;
  ASSIGN_OR_RETURN(const int64_t files, Unpack(reader, folder));
  out.history_files = files - 1;
  RETURN_IF_ERROR(Declare(folder, &out));
  RETURN_IF_ERROR(PutInPlace(folder, state_dir));
  return out;
}

}  // namespace

StatusOr<Restored> RestoreBackup(const std::string& archive, const std::string& state_dir) {
  ASSIGN_OR_RETURN(ArchiveReader reader, ArchiveReader::Open(archive));
  RETURN_IF_ERROR(CheckEmpty(state_dir));
  const bool made = !base::Exists(state_dir);
  RETURN_IF_ERROR(base::MakeDirs(state_dir));
  if (made && chmod(state_dir.c_str(), 0700) != 0)
    return base::ErrnoError(errno, "chmod " + state_dir);
  ASSIGN_OR_RETURN(const base::Fd lock, LockStoreFolder(state_dir));
  const std::string folder = base::JoinPath(state_dir, kUnpacked);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  auto restored = RestoreInto(&reader, folder, state_dir);
  fs::remove_all(folder, ignored);
  return restored;
}

}  // namespace mt::daemon
