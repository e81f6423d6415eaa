// The lock is flock(2), which the kernel releases when the process ends, however it ends.
#include "worker/node/ranks/state_dir.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/ids.h"

namespace mt::node {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un{}.sun_path) - 1;

// Creates a folder that only this user can enter, or accepts an existing one of this kind.
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
  StateDir state(absolute, std::move(lock));
  RETURN_IF_ERROR(base::MakeDirs(state.allocations()));
  if (::chmod(state.allocations().c_str(), 0700) != 0)
    return base::ErrnoError(errno, "chmod " + state.allocations());
  return state;
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

}  // namespace mt::node
