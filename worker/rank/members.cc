// The parent polls its children and its signals five times a second. When one rank fails, the
// others notice through their groups; those that have not ended after a limit are killed.
#include "worker/rank/members.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/control/numbers.h"
#include "common/control/rank_exit_codes.h"

namespace mt::rank {
namespace {

class Members {
 public:
  Members(int world, std::vector<std::string> arguments, std::string folder)
      : arguments_(std::move(arguments)), folder_(std::move(folder)) {
    pids_.resize(static_cast<size_t>(world), 0);
  }

  Status StartAll() {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      std::vector<std::string> args = arguments_;
      args.insert(args.end(), {"--rendezvous", folder_, "--rank", std::to_string(rank)});
      Status started = Start(&args, &pids_[rank]);
      if (!started.ok()) {
        SignalAll(SIGKILL);
        return started;
      }
    }
    return OkStatus();
  }

  // Blocks until all members have ended; returns the run's exit code.
  int Wait() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&set, number);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    const timespec slice{0, 200'000'000};
    while (Reap()) {
      const int number = ::sigtimedwait(&set, nullptr, &slice);
      if (number == SIGTERM || number == SIGINT) OnStop();
      if (failed_ && base::Clock::Real()->Now() > kill_at_) SignalAll(SIGKILL);
    }
    return culprit_ < 0 ? control::kExitDone : Explain();
  }

 private:
  static Status Start(std::vector<std::string>* args, pid_t* pid) {
    std::vector<char*> argv;
    for (std::string& arg : *args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    // A process group of its own: Ctrl-C on a terminal reaches only the first process, which
    // forwards it.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int error =
        posix_spawn(pid, "/proc/self/exe", nullptr, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    return error == 0 ? OkStatus() : base::ErrnoError(error, "start a rank");
  }

  void SignalAll(int number) {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, number);
    }
  }

  void OnStop() {
    if (stop_asked_) {
      SignalAll(SIGKILL);
    } else if (pids_[0] > 0) {
      ::kill(pids_[0], SIGTERM);
    }
    stop_asked_ = true;
  }

  // Reaps members that have ended; false once none is left.
  bool Reap() {
    bool any = false;
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] == 0) continue;
      int status = 0;
      if (::waitpid(pids_[rank], &status, WNOHANG) == 0) {
        any = true;
        continue;
      }
      pids_[rank] = 0;
      if (status != 0) OnFailed(static_cast<int>(rank), status);
    }
    return any;
  }

  // Chooses the rank to blame: one that lost its peers (75) only if no other failed, and never one
  // that was killed here.
  void OnFailed(int rank, int status) {
    const bool killed_here = failed_ && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
                             base::Clock::Real()->Now() > kill_at_;
    const bool transient = WIFEXITED(status) && WEXITSTATUS(status) == control::kExitTransient;
    const bool better = culprit_ < 0 || (culprit_transient_ && !transient);
    if (better && !killed_here) {
      culprit_ = rank;
      culprit_status_ = status;
      culprit_transient_ = transient;
    }
    if (failed_) return;
    failed_ = true;
    kill_at_ = base::Clock::Real()->Now() + control::kAbortKill;
  }

  int Explain() const {
    if (WIFSIGNALED(culprit_status_)) {
      const int number = WTERMSIG(culprit_status_);
      std::fprintf(stderr, "mt-rank: rank %d was killed by signal %d (%s)\n", culprit_, number,
                   ::strsignal(number));
      return 128 + number;
    }
    const int code = WEXITSTATUS(culprit_status_);
    const auto error = base::ReadFile(MemberErrorFile(folder_, culprit_));
    std::fprintf(stderr, "mt-rank: rank %d: %s\n", culprit_,
                 error.ok() ? error->c_str() : fmt::format("exit code {}", code).c_str());
    return code;
  }

  const std::vector<std::string> arguments_;
  const std::string folder_;
  std::vector<pid_t> pids_;  // 0: ended
  bool stop_asked_ = false;
  bool failed_ = false;
  base::MonotonicTime kill_at_;
  int culprit_ = -1;
  int culprit_status_ = 0;
  bool culprit_transient_ = false;
};

}  // namespace

std::string MemberErrorFile(const std::string& rendezvous, int rank) {
  return fmt::format("{}/error-{}", rendezvous, rank);
}

int RunMembers(int world, const std::vector<std::string>& arguments) {
  std::string folder = (std::filesystem::temp_directory_path() / "mt-rank-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "mt-rank: %s: %s\n", folder.c_str(), std::strerror(errno));
    return control::kExitConfig;
  }
  Members members(world, arguments, folder);
  const Status started = members.StartAll();
  int code = control::kExitInternal;
  if (started.ok()) {
    code = members.Wait();
  } else {
    std::fprintf(stderr, "mt-rank: %s\n", base::Message(started).c_str());
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return code;
}

void DieWithParent() {
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent || parent == 1) std::_Exit(control::kExitTransient);
}

}  // namespace mt::rank
