// pidfd_open and pidfd_send_signal, called through syscall(2), and /proc.
#include "worker/node/process/process.h"

#include <charconv>
#include <dirent.h>
#include <memory>
#include <sstream>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace mt::node {
namespace {

// glibc 2.36 declares neither for C++.
int PidfdOpen(int pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

bool HasArgument(const std::string& command_line, std::string_view flag, std::string_view value) {
  bool after_flag = false;
  for (size_t begin = 0; begin < command_line.size();) {
    const size_t end = std::min(command_line.find('\0', begin), command_line.size());
    const std::string_view argument = std::string_view(command_line).substr(begin, end - begin);
    if (after_flag && argument == value) return true;
    after_flag = argument == flag;
    begin = end + 1;
  }
  return false;
}

}  // namespace

int64_t StartTicks(int pid) {
  const auto stat = base::ReadFile("/proc/" + std::to_string(pid) + "/stat");
  if (!stat.ok()) return -1;
  // Field 2, the command, may hold anything; the last ')' ends it. State is 3, start time 22.
  std::istringstream fields(stat->substr(stat->rfind(')') + 1));
  std::string state;
  fields >> state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  int64_t ticks = -1;
  fields >> ticks;
  return state == "Z" || state == "X" ? -1 : ticks;
}

bool IsAlive(int pid, int64_t start_ticks) {
  return pid > 0 && start_ticks >= 0 && StartTicks(pid) == start_ticks;
}

base::Fd OpenChild(int pid) { return base::Fd(PidfdOpen(pid)); }

base::Fd OpenProcess(int pid, int64_t start_ticks) {
  if (pid <= 0) return {};
  base::Fd process = OpenChild(pid);
  // Compared after opening: the descriptor cannot come to refer to another process.
  if (!process || !IsAlive(pid, start_ticks)) return {};
  return process;
}

bool SignalProcess(const base::Fd& process, int signal_number) {
  return ::syscall(SYS_pidfd_send_signal, process.get(), signal_number, nullptr, 0) == 0;
}

std::vector<int> FindByArgument(std::string_view flag, std::string_view value) {
  std::vector<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return found;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is local to this call.
  while (const struct dirent* entry = ::readdir(proc.get())) {
    const std::string_view name = entry->d_name;
    int pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) continue;
    const auto command_line = base::ReadFile("/proc/" + std::string(name) + "/cmdline");
    if (!command_line.ok() || pid == ::getpid()) continue;
    if (HasArgument(*command_line, flag, value)) found.push_back(pid);
  }
  return found;
}

}  // namespace mt::node
