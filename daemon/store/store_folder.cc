// stat tells "not there" from "not allowed to look", which access(2) does not.
#include "daemon/store/store_folder.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "common/base/log.h"

namespace mt::daemon {
namespace {

constexpr mode_t kOthers = 0077;

// What stat(2) finds: a folder, something else, or nothing.
enum class Found { kNothing, kFolder, kOther };

StatusOr<Found> Look(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) return S_ISDIR(info.st_mode) ? Found::kFolder : Found::kOther;
  if (errno == ENOENT) return Found::kNothing;
  return base::ErrnoError(errno, fmt::format("look at {}", path));
}

// OK for a folder or for nothing; sets `found`.
Status LookAtFolder(const std::string& state_dir, Found* found) {
  ASSIGN_OR_RETURN(*found, Look(state_dir));
  if (*found == Found::kOther) {
    return base::FailedPrecondition(
        "--state {} is not a folder; name the coordinator's state folder", state_dir);
  }
  if (*found == Found::kFolder && access(state_dir.c_str(), R_OK | W_OK | X_OK) != 0)
    return base::ErrnoError(errno, fmt::format("read and write --state {}", state_dir));
  return OkStatus();
}

// A write-ahead log without its database: the database was removed or not restored.
Status CheckNoLogAlone(const std::string& state_dir) {
  const std::string log = base::JoinPath(state_dir, std::string(kDatabaseFile) + "-wal");
  ASSIGN_OR_RETURN(const Found found, Look(log));
  if (found == Found::kNothing) return OkStatus();
  return base::FailedPrecondition(
      "{} is there without {}: the database was taken away. Put back both, or move the folder "
      "aside "
      "and restore a backup (mt-coordinator restore --state {} --from FILE)",
      log, kDatabaseFile, state_dir);
}

}  // namespace

Status CheckStoreFolder(const std::string& state_dir) {
  Found folder = Found::kNothing;
  RETURN_IF_ERROR(LookAtFolder(state_dir, &folder));
  if (folder == Found::kFolder) {
    ASSIGN_OR_RETURN(const Found database, Look(base::JoinPath(state_dir, kDatabaseFile)));
    if (database != Found::kNothing) return OkStatus();
    RETURN_IF_ERROR(CheckNoLogAlone(state_dir));
  }
  return base::FailedPrecondition(
      "{} holds no store ({}). Is a mount missing, or --state another folder than before? To go on "
      "from a backup: mt-coordinator restore --state {} --from FILE. Only for a new cluster: "
      "mt-coordinator init --state {}",
      state_dir,
      folder == Found::kNothing ? "there is no such folder" : "no coordinator.db is in it",
      state_dir, state_dir);
}

Status CheckNoStore(const std::string& state_dir) {
  Found folder = Found::kNothing;
  RETURN_IF_ERROR(LookAtFolder(state_dir, &folder));
  if (folder == Found::kNothing) return OkStatus();
  const std::string path = base::JoinPath(state_dir, kDatabaseFile);
  ASSIGN_OR_RETURN(const Found database, Look(path));
  if (database != Found::kNothing) {
    return base::FailedPrecondition(
        "{}: there is one already; start the coordinator, or move the folder aside first", path);
  }
  return CheckNoLogAlone(state_dir);
}

StatusOr<base::Fd> LockStoreFolder(const std::string& state_dir) {
  const std::string path = base::JoinPath(state_dir, "coordinator.lock");
  base::Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return base::ErrnoError(errno, fmt::format("open {}", path));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return base::ErrnoError(errno, fmt::format("lock {}", path));
    std::array<char, 32> holder{};
    const ssize_t bytes = pread(fd.get(), holder.data(), holder.size() - 1, 0);
    return base::FailedPrecondition(
        "state folder {} is in use by another coordinator (process {}); stop that one or give this "
        "one its own --state",
        state_dir, bytes > 0 ? holder.data() : "unknown");
  }
  // The lock is what counts. On a full disk the number may stay that of an earlier holder.
  const std::string pid = std::to_string(getpid());
  const auto size = static_cast<ssize_t>(pid.size());
  if (pwrite(fd.get(), pid.data(), pid.size(), 0) != size || ftruncate(fd.get(), size) != 0) {
    log::Warn("the lock file does not name this process",
              {{"path", path}, {"error", std::generic_category().message(errno)}});
  }
  return fd;
}

void CloseToOthers(const std::string& state_dir) {
  namespace fs = std::filesystem;
  const auto close = [](const std::string& path) {
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0 || S_ISLNK(info.st_mode) || info.st_uid != geteuid())
      return;
    if ((info.st_mode & kOthers) == 0 || chmod(path.c_str(), info.st_mode & 07777 & ~kOthers) == 0)
      return;
    log::Warn("other users can read the state, and its mode cannot be changed",
              {{"path", path}, {"error", base::Message(base::ErrnoError(errno, "chmod"))}});
  };
  const std::string database = base::JoinPath(state_dir, kDatabaseFile);
  const std::string history = base::JoinPath(state_dir, "history");
  for (const std::string& path : {state_dir, database, database + "-wal", database + "-shm",
                                  base::JoinPath(state_dir, "coordinator.lock"), history}) {
    close(path);
  }
  std::error_code error;
  for (fs::recursive_directory_iterator it(history, error), end; !error && it != end;
       it.increment(error)) {
    close(it->path().string());
  }
}

}  // namespace mt::daemon
