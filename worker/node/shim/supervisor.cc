// Signals arrive through a signalfd, the agent's death as a hang-up of the stop pipe. The shim is a
// child subreaper (prctl(2)), so orphaned descendants of the rank become its children and are
// killed at the end.
#include "worker/node/shim/supervisor.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <initializer_list>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/node/shim/log_bound.h"
#include "worker/node/shim/record.h"

namespace mt::node {
namespace {

long long MonotonicMs() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

// Closes all inherited descriptors but the standard streams and the stop pipe. Another rank's pipe,
// kept open here, would hide the agent's death from that rank's shim.
void CloseInherited(int stop_fd) {
  if (stop_fd < 0) {
    ::close_range(3, UINT_MAX, 0);
    return;
  }
  if (stop_fd > 3) ::close_range(3, static_cast<unsigned>(stop_fd - 1), 0);
  ::close_range(static_cast<unsigned>(stop_fd + 1), UINT_MAX, 0);
  ::fcntl(stop_fd, F_SETFD, FD_CLOEXEC);
}

bool RedirectOutput(const char* log) {
  const int null_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int log_fd = ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  const bool ok = null_fd >= 0 && log_fd >= 0 && ::dup2(null_fd, 0) >= 0 &&
                  ::dup2(log_fd, 1) >= 0 && ::dup2(log_fd, 2) >= 0;
  const int error = errno;
  if (null_fd > 2) ::close(null_fd);
  if (log_fd > 2) ::close(log_fd);
  errno = error;
  return ok;
}

// The signals that the shim blocks and reads from its signalfd.
sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
  return set;
}

// The order in which the OOM killer chooses: a rank before its shim and its agent. Lowering one's
// own score needs a privilege that the shim may lack; it then keeps the inherited score.
constexpr const char* kShimOomScore = "-900";
constexpr const char* kRankOomScore = "500";

void SetOomScore(const char* score) {
  const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t written = ::write(fd, score, std::strlen(score));
  static_cast<void>(written);
  ::close(fd);
}

[[noreturn]] void ExecRank(const ShimOptions& options, int error_fd) {
  ::setpgid(0, 0);
  SetOomScore(kRankOomScore);
  // Best effort: cores may have been taken offline since they were listed.
  if (options.has_cpus && ::sched_setaffinity(0, sizeof(options.cpus), &options.cpus) != 0)
    std::fprintf(stderr, "mt-shim: --cpus: %s\n", std::strerror(errno));
  char** const program = options.program;
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execv(program[0], program);
  const int error = errno;
  const ssize_t written = ::write(error_fd, &error, sizeof(error));
  std::_Exit(written == sizeof(error) ? 127 : 126);
}

// Starts the rank and returns its pid, or -1 with errno if it could not be started, in which case
// no process is left.
pid_t StartRank(const ShimOptions& options) {
  int error_pipe[2];  // closed by a successful exec, else carries errno
  if (::pipe2(error_pipe, O_CLOEXEC) != 0) return -1;
  const pid_t pid = ::fork();
  if (pid == 0) ExecRank(options, error_pipe[1]);
  int error = pid < 0 ? errno : 0;
  ::close(error_pipe[1]);
  if (pid > 0) {
    ::setpgid(pid, pid);  // parent and child both do; whichever comes first
    ssize_t n = 0;
    do {
      n = ::read(error_pipe[0], &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    if (n != sizeof(error)) error = 0;
    if (error != 0) ::waitpid(pid, nullptr, 0);
  }
  ::close(error_pipe[0]);
  errno = error;
  return error != 0 ? -1 : pid;
}

// Sends SIGKILL to every child of this process, which includes orphans of the rank. True if there
// was one.
bool KillChildren() {
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return false;
  bool any = false;
  while (const struct dirent* entry = ::readdir(proc)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE* file = std::fopen(path, "re");
    if (file == nullptr) continue;
    char stat[1024];
    const size_t n = std::fread(stat, 1, sizeof(stat) - 1, file);
    std::fclose(file);
    stat[n] = '\0';
    const char* end = std::strrchr(stat, ')');
    char state = '?';
    int parent = 0;
    if (end == nullptr || std::sscanf(end + 1, " %c %d", &state, &parent) != 2) continue;
    if (parent != ::getpid()) continue;
    ::kill(pid, SIGKILL);
    any = true;
  }
  ::closedir(proc);
  return any;
}

// Kills what the rank left behind in process groups and sessions of its own. Orphans of those
// killed here become children of the shim and are found in the next round.
void Sweep() {
  while (KillChildren()) {
    while (::waitpid(-1, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

class Supervisor {
 public:
  Supervisor(const ShimOptions& options, int signal_fd, pid_t rank)
      : options_(options),
        signal_fd_(signal_fd),
        rank_(rank),
        log_(STDOUT_FILENO, options.log_max_mib) {}

  // Handles events until the rank is gone, then fills in the record.
  void Run(ExitRecord* record) {
    while (!Reap(record)) {
      struct pollfd fds[2] = {{signal_fd_, POLLIN, 0},
                              {stop_fd_open_ ? options_.stop_fd : -1, 0, 0}};
      const int ready = ::poll(fds, 2, Timeout());
      if (ready < 0 && errno != EINTR) std::abort();
      if (MonotonicMs() >= next_log_check_ms_) {
        log_.Apply();
        next_log_check_ms_ = MonotonicMs() + kLogCheckMs;
      }
      if (stopping_ && MonotonicMs() >= kill_at_ms_) ::kill(-rank_, SIGKILL);
      if (ready <= 0) continue;
      if ((fds[0].revents & POLLIN) != 0) ReadSignals();
      if ((fds[1].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
        stop_fd_open_ = false;
        Stop(StopReason::kAgentGone, /*grace=*/true);
      }
    }
    record->stop = reason_;
  }

 private:
  int Timeout() const {
    const long long now = MonotonicMs();
    long long left = next_log_check_ms_ - now;
    if (stopping_ && kill_at_ms_ - now < left) {
      left =
          kill_at_ms_ > now ? kill_at_ms_ - now : 100;  // overdue: repeat SIGKILL until it is gone
    }
    return left > 0 ? static_cast<int>(left) : 0;
  }

  // Stops the rank: SIGTERM now and SIGKILL after the grace period; without `grace`, SIGKILL now.
  void Stop(StopReason reason, bool grace) {
    if (!stopping_) {
      stopping_ = true;
      reason_ = reason;
      kill_at_ms_ = MonotonicMs() + options_.grace_ms;
      if (grace) ::kill(-rank_, SIGTERM);
    }
    if (!grace) {
      kill_at_ms_ = MonotonicMs();
      ::kill(-rank_, SIGKILL);
    }
  }

  void ReadSignals() {
    struct signalfd_siginfo info {};
    while (::read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) Stop(StopReason::kSignal, info.ssi_signo != SIGQUIT);
    }
  }

  // Reaps children that have ended, adopted ones included; true once the rank is among them. The
  // rank's group is killed while the rank is still a zombie: its number cannot be reused for
  // another group before it is reaped.
  bool Reap(ExitRecord* record) {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
        return false;
      }
      const bool is_rank = info.si_pid == rank_;
      if (is_rank) ::kill(-rank_, SIGKILL);
      int status = 0;
      struct rusage usage {};
      ::wait4(info.si_pid, &status, WNOHANG, &usage);
      if (!is_rank) continue;
      record->wait_status = status;
      record->usage = usage;
      return true;
    }
  }

  const ShimOptions& options_;
  const int signal_fd_;
  const pid_t rank_;
  LogBound log_;
  long long next_log_check_ms_ = 0;
  bool stop_fd_open_ = options_.stop_fd >= 0;
  bool stopping_ = false;
  StopReason reason_ = StopReason::kNone;
  long long kill_at_ms_ = 0;
};

int RecordStartFailure(const ShimOptions& options, const char* what) {
  ExitRecord record;
  record.wait_status = 127 << 8;  // exit code 127, as a shell uses for "not started"
  record.error = what;
  record.error_number = errno;
  std::fprintf(stderr, "mt-shim: %s: %s\n", what, std::strerror(errno));
  return WriteExitRecord(options, record) ? kRecorded : kNotRecorded;
}

}  // namespace

int Supervise(const ShimOptions& options) {
  SetOomScore(kShimOomScore);
  ::setsid();  // fails only if the shim already leads a session
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  CloseInherited(options.stop_fd);
  if (!RedirectOutput(options.log)) return RecordStartFailure(options, options.log);
  const sigset_t watched = WatchedSignals();
  ::sigprocmask(SIG_SETMASK, &watched, nullptr);
  const int signal_fd = ::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0) return RecordStartFailure(options, "signalfd");
  const pid_t rank = StartRank(options);
  if (rank < 0) return RecordStartFailure(options, options.program[0]);
  ExitRecord record;
  if (!WriteRankRecord(options, rank)) {
    // A later agent could not find the rank without this record, so it must not run.
    ::kill(-rank, SIGKILL);
    record.error = "rank.json could not be written";
  }
  Supervisor(options, signal_fd, rank).Run(&record);
  Sweep();
  return WriteExitRecord(options, record) ? kRecorded : kNotRecorded;
}

}  // namespace mt::node
