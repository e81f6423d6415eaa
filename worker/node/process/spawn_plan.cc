// The agent ignores SIGPIPE and handles others; a child must not inherit that.
#include "worker/node/process/spawn_plan.h"

#include <csignal>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace mt::node {
namespace {

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Status SpawnStatus(int error) {
  return error == 0 ? OkStatus() : base::ErrnoError(error, "posix_spawn");
}

}  // namespace

SpawnPlan::SpawnPlan() {
  posix_spawn_file_actions_init(&actions_);
  posix_spawnattr_init(&attributes_);
  // Every signal has its default action, and none is blocked.
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes_, &all);
  posix_spawnattr_setsigmask(&attributes_, &none);
  posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

SpawnPlan::~SpawnPlan() {
  posix_spawn_file_actions_destroy(&actions_);
  posix_spawnattr_destroy(&attributes_);
}

Status SpawnPlan::Give(int from, int to) {
  return SpawnStatus(posix_spawn_file_actions_adddup2(&actions_, from, to));
}

Status SpawnPlan::Silence(int to) {
  return SpawnStatus(posix_spawn_file_actions_addopen(&actions_, to, "/dev/null", O_WRONLY, 0));
}

StatusOr<pid_t> SpawnPlan::Spawn(std::vector<std::string> arguments,
                                 std::vector<std::string> environment) {
  pid_t pid = 0;
  std::vector<char*> argv = Pointers(&arguments);
  std::vector<char*> envp = Pointers(&environment);
  const int error = posix_spawn(&pid, argv[0], &actions_, &attributes_, argv.data(), envp.data());
  if (error != 0) return base::ErrnoError(error, "start " + arguments[0]);
  return pid;
}

std::vector<std::string> ChildEnvironment() {
  std::vector<std::string> environment;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const bool managers = entry.starts_with("NOTIFY_SOCKET=") || entry.starts_with("WATCHDOG_");
    if (!managers) environment.emplace_back(entry);
  }
  return environment;
}

}  // namespace mt::node
