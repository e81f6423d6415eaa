// The output is a memfd and no pipe, so that a program that prints much never waits for its reader.
#include "worker/node/process/captured_run.h"

#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/node/process/process.h"
#include "worker/node/process/spawn_plan.h"

namespace mt::node {
namespace {

constexpr size_t kMaxOutputBytes = 1 << 20;

}  // namespace

StatusOr<CapturedRun> StartCaptured(const std::vector<std::string>& command) {
  CapturedRun run;
  run.output.Reset(::memfd_create("mt-output", MFD_CLOEXEC));
  if (!run.output) return base::ErrnoError(errno, "memfd_create");
  SpawnPlan plan;
  RETURN_IF_ERROR(plan.Give(run.output.get(), STDOUT_FILENO));
  RETURN_IF_ERROR(plan.Silence(STDERR_FILENO));
  const auto pid = plan.Spawn(command, ChildEnvironment());
  if (!pid.ok()) return base::Internal("{}", base::Message(pid.status()));
  run.pid = *pid;
  run.process = OpenChild(*pid);
  if (run.process) return run;
  const int error = errno;
  ::kill(*pid, SIGKILL);
  ::waitpid(*pid, nullptr, 0);
  return base::ErrnoError(error, "watch " + command.front());
}

bool EndsWithin(const CapturedRun& run, std::chrono::milliseconds time) {
  struct pollfd wait {
    run.process.get(), POLLIN, 0
  };
  return ::poll(&wait, 1, static_cast<int>(time.count())) == 1;
}

std::string OutputOf(const CapturedRun& run) {
  std::string text;
  char block[4096];
  ssize_t n = 0;
  while (text.size() < kMaxOutputBytes && (n = ::pread(run.output.get(), block, sizeof(block),
                                                       static_cast<off_t>(text.size()))) > 0) {
    text.append(block, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace mt::node
