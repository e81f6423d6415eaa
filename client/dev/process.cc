// fork, setsid and exec by hand: the child outlives mtctl, and the caller learns whether exec
// succeeded.
#include "client/dev/process.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "common/base/files.h"

namespace mt::client {
namespace {

struct ProcStat {
  char state = '?';
  int64_t num_threads = 0;
  uint64_t start_ticks = 0;
};

StatusOr<ProcStat> ReadStat(int64_t pid) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(fmt::format("/proc/{}/stat", pid)));
  // The program's name is in parentheses and may contain any character, ')' too.
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return base::Internal("unreadable /proc/{}/stat", pid);
  std::istringstream fields(text.substr(close + 1));
  ProcStat stat;
  std::string skip;
  fields >> stat.state;
  constexpr int kFieldsBetweenStateAndThreads = 16;
  for (int i = 0; i < kFieldsBetweenStateAndThreads; ++i) fields >> skip;
  fields >> stat.num_threads >> skip >> stat.start_ticks;
  return stat;
}

// Runs in the child process and never returns.
[[noreturn]] void Exec(const std::vector<std::string>& argv, int log_fd, int error_fd) {
  ::setsid();
  const int null_fd = ::open("/dev/null", O_RDONLY);
  ::dup2(null_fd, STDIN_FILENO);
  ::dup2(log_fd, STDOUT_FILENO);
  ::dup2(log_fd, STDERR_FILENO);
  std::vector<char*> args;
  args.reserve(argv.size() + 1);
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  ::execv(args[0], args.data());
  const int error = errno;
  (void)!::write(error_fd, &error, sizeof(error));
  ::_exit(127);
}

}  // namespace

StatusOr<ProcessId> StartDetached(const std::vector<std::string>& argv,
                                  const std::string& log_path) {
  const base::Fd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log) return base::ErrnoError(errno, "open " + log_path);
  // The pipe is closed by a successful exec; otherwise it carries errno.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::ErrnoError(errno, "pipe");
  const base::Fd reader(ends[0]);
  base::Fd writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return base::ErrnoError(errno, "fork");
  if (pid == 0) Exec(argv, log.get(), writer.get());
  writer.Reset();
  int error = 0;
  if (::read(reader.get(), &error, sizeof(error)) == sizeof(error)) {
    ::waitpid(pid, nullptr, 0);
    return base::ErrnoError(error, "start " + argv[0]);
  }
  ASSIGN_OR_RETURN(const ProcStat stat, ReadStat(pid));
  return ProcessId{pid, stat.start_ticks};
}

bool IsAlive(const ProcessId& process) {
  if (process.pid <= 0) return false;
  // A child of this process remains a zombie, which looks alive, until it is waited for.
  ::waitpid(static_cast<pid_t>(process.pid), nullptr, WNOHANG);
  const auto stat = ReadStat(process.pid);
  if (!stat.ok() || stat->start_ticks != process.start_ticks) return false;
  // Its first thread may be a zombie while others still hold its files and locks.
  return (stat->state != 'Z' && stat->state != 'X') || stat->num_threads > 1;
}

Status StopProcess(const ProcessId& process, std::chrono::milliseconds grace) {
  constexpr std::chrono::milliseconds kPoll{50};
  constexpr std::chrono::seconds kKillLimit{10};
  for (const auto& [signal, limit] :
       {std::pair{SIGTERM, grace}, std::pair{SIGKILL, std::chrono::milliseconds(kKillLimit)}}) {
    if (!IsAlive(process)) return OkStatus();
    if (::kill(static_cast<pid_t>(process.pid), signal) != 0 && errno != ESRCH) {
      return base::ErrnoError(errno, fmt::format("stop process {}", process.pid));
    }
    const auto until = std::chrono::steady_clock::now() + limit;
    while (IsAlive(process) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(kPoll);
  }
  if (IsAlive(process))
    return base::Internal("process {} does not end, not even by SIGKILL", process.pid);
  return OkStatus();
}

}  // namespace mt::client
