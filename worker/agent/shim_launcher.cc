#include "worker/agent/shim_launcher.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "common/base/log.h"
#include "worker/agent/rank_record.h"

namespace mt::agent {
namespace {

constexpr int kStopFd = 3;  // of the pipe, in the shim

// posix_spawn's attributes and actions, released together.
class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // The child's descriptor `to` is this process' `from`; default signals, nothing blocked.
  Status Prepare(int from, int to) {
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    const int error = posix_spawn_file_actions_adddup2(&actions_, from, to);
    return error == 0 ? OkStatus() : base::ErrnoError(error, "posix_spawn");
  }
  StatusOr<pid_t> Spawn(std::vector<std::string> arguments, std::vector<std::string> environment) {
    pid_t pid = 0;
    std::vector<char*> argv = Pointers(&arguments);
    std::vector<char*> envp = Pointers(&environment);
    const int error = posix_spawn(&pid, argv[0], &actions_, &attributes_, argv.data(), envp.data());
    if (error != 0) return base::ErrnoError(error, "start " + arguments[0]);
    return pid;
  }

 private:
  static std::vector<char*> Pointers(std::vector<std::string>* texts) {
    std::vector<char*> pointers;
    for (std::string& text : *texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::vector<std::string> EnvironmentWith(const std::string& entry) {
  std::vector<std::string> environment;
  for (char** at = environ; *at != nullptr; ++at) environment.emplace_back(*at);
  environment.push_back(entry);
  return environment;
}

}  // namespace

ShimLauncher::ShimLauncher(EventLoop* loop, Config config)
    : loop_(loop), config_(std::move(config)) {}
ShimLauncher::~ShimLauncher() = default;

std::vector<std::string> ShimLauncher::Arguments(const RankLaunch& args) const {
  return {config_.shim_binary,
          "--dir",
          args.folder,
          "--log",
          args.log_file,
          "--stop-fd",
          std::to_string(kStopFd),
          "--job",
          args.job_uid,
          "--epoch",
          std::to_string(args.epoch),
          "--rank",
          std::to_string(args.rank),
          "--slot",
          std::to_string(args.slot),
          "--grace-ms",
          std::to_string(config_.grace_ms),
          "--",
          config_.rank_binary,
          "--agent-socket",
          config_.socket,
          "--job-uid",
          args.job_uid,
          "--epoch",
          std::to_string(args.epoch),
          "--rank",
          std::to_string(args.rank),
          "--threads",
          std::to_string(args.threads)};
}

Status ShimLauncher::Start(LaunchId launch, const RankLaunch& args) {
  RETURN_IF_ERROR(base::MakeDirs(args.folder));
  RETURN_IF_ERROR(base::MakeDirs(std::filesystem::path(args.log_file).parent_path().string()));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::ErrnoError(errno, "pipe");
  base::Fd read_end(ends[0]);
  base::Fd write_end(ends[1]);
  // dup2 onto itself would keep the close-on-exec flag.
  if (read_end.get() == kStopFd) {
    read_end.Reset(::fcntl(read_end.get(), F_DUPFD_CLOEXEC, kStopFd + 1));
    if (!read_end) return base::ErrnoError(errno, "dup");
  }
  SpawnPlan plan;
  RETURN_IF_ERROR(plan.Prepare(read_end.get(), kStopFd));
  ASSIGN_OR_RETURN(const pid_t pid,
                   plan.Spawn(Arguments(args), EnvironmentWith("MT_RANK_TOKEN=" + args.token)));
  children_[launch] =
      Child{.shim_pid = pid, .stop_pipe = std::move(write_end), .folder = args.folder};
  return OkStatus();
}

void ShimLauncher::Signal(LaunchId launch, int signal_number) {
  const auto child = children_.find(launch);
  if (child != children_.end()) ::kill(child->second.shim_pid, signal_number);
}
void ShimLauncher::Terminate(LaunchId launch) { Signal(launch, SIGTERM); }
void ShimLauncher::Kill(LaunchId launch) { Signal(launch, SIGQUIT); }

RankExit ShimLauncher::ReadExit(const Child& child, int shim_status) {
  auto exit = ReadExitRecord(child.folder);
  if (exit.ok()) return std::move(exit).value();
  // The shim was killed, or its disk is full. Its rank, if it lives, has no parent any more.
  const auto record = ReadRankRecord(child.folder);
  if (record.ok() && IsAlive(record->pid, record->start_ticks)) ::kill(-record->pid, SIGKILL);
  const std::string how = WIFSIGNALED(shim_status)
                              ? fmt::format("signal {}", WTERMSIG(shim_status))
                              : fmt::format("exit code {}", WEXITSTATUS(shim_status));
  return RankExit{.known = false,
                  .error = fmt::format("its mt-shim ended ({}) and left no record of the exit: {}",
                                       how, base::Message(exit.status()))};
}

void ShimLauncher::ReapChildren() {
  for (auto child = children_.begin(); child != children_.end();) {
    int status = 0;
    const pid_t pid = ::waitpid(child->second.shim_pid, &status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) {
      ++child;
      continue;
    }
    const RankExit exit = ReadExit(child->second, status);
    std::error_code error;
    std::filesystem::remove_all(child->second.folder, error);
    if (error) {
      log::Warn("a rank's folder cannot be removed",
                {{"folder", child->second.folder}, {"why", error.message()}});
    }
    const LaunchId launch = child->first;
    child = children_.erase(child);
    loop_->Post([this, launch, exit] { listener_->OnRankGone(launch, exit); });
  }
}

}  // namespace mt::agent
