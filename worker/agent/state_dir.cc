#include "worker/agent/state_dir.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "common/base/ids.h"
#include "common/base/log.h"
#include "worker/agent/rank_record.h"

namespace mt::agent {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un{}.sun_path) - 1;
constexpr std::chrono::milliseconds kPoll{20};

// A folder that only this user can enter: an existing one of somebody else is not taken.
Status MakePrivateDir(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return OkStatus();
  if (errno != EEXIST) return base::ErrnoError(errno, "create folder " + path);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return base::ErrnoError(errno, "stat " + path);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return base::FailedPrecondition(
        "{} is not a folder of this user alone; remove it, or give mt-worker a shorter --state",
        path);
  }
  return OkStatus();
}

}  // namespace

StatusOr<StateDir> StateDir::Open(const std::string& path) {
  RETURN_IF_ERROR(base::MakeDirs(path));
  if (::chmod(path.c_str(), 0700) != 0) return base::ErrnoError(errno, "chmod " + path);
  const std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  const std::string lock_path = absolute + "/lock";
  base::Fd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return base::ErrnoError(errno, "open " + lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return base::ErrnoError(errno, "lock " + lock_path);
    return base::FailedPrecondition("another mt-worker uses the state folder {}", absolute);
  }
  RETURN_IF_ERROR(base::MakeDirs(absolute + "/ranks"));
  return StateDir(absolute, std::move(lock));
}

StatusOr<std::string> StateDir::SocketPath() const {
  const std::string near = path_ + "/agent.sock";
  if (near.size() <= kMaxSocketPath) return near;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe): start
  const std::string parent = runtime != nullptr && runtime[0] == '/'
                                 ? std::string(runtime) + "/megatrain"
                                 : fmt::format("/tmp/megatrain-{}", ::geteuid());
  RETURN_IF_ERROR(MakePrivateDir(parent));
  std::string path = fmt::format("{}/{:016x}.sock", parent, base::Hash64(path_));
  if (path.size() > kMaxSocketPath) {
    return base::FailedPrecondition("{} is too long for a socket; give mt-worker a shorter --state",
                                    path);
  }
  return path;
}

StatusOr<int> StateDir::SweepLeftovers(std::chrono::milliseconds limit) {
  const std::string boot_id = base::BootId();
  std::vector<RankRecord> alive;
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(rank_folders())) {
    folders.push_back(entry.path().string());
    const auto record = ReadRankRecord(folders.back());
    if (!record.ok() || record->boot_id != boot_id) continue;
    if (IsAlive(record->pid, record->start_ticks)) {
      log::Warn("a rank of an earlier agent is still there: ending it", {{"pid", record->pid}});
      ::kill(-record->pid, SIGKILL);
      alive.push_back(*record);
    } else if (IsAlive(record->shim_pid, record->shim_start_ticks)) {
      alive.push_back(*record);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (const RankRecord& record : alive) {
    // The shim goes last, after it has swept what the rank left.
    while (IsAlive(record.pid, record.start_ticks) ||
           IsAlive(record.shim_pid, record.shim_start_ticks)) {
      if (std::chrono::steady_clock::now() > deadline) {
        return base::Error(absl::StatusCode::kDeadlineExceeded,
                           "process {} of an earlier agent does not end", record.pid);
      }
      std::this_thread::sleep_for(kPoll);
    }
  }
  for (const std::string& folder : folders) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    if (error) return base::ErrnoError(error.value(), "remove " + folder);
  }
  return static_cast<int>(alive.size());
}

}  // namespace mt::agent
