// Exit codes are those of common/control/rank_exit_codes.h; the text on stdout is for people.
#include "worker/node/agent/blas_check.h"

#include <csignal>
#include <cstring>
#include <sys/wait.h>

#include <fmt/format.h>

#include "common/base/log.h"
#include "common/control/rank_exit_codes.h"
#include "worker/node/process/captured_run.h"
#include "worker/node/process/process.h"

namespace mt::node {
namespace {

constexpr std::chrono::milliseconds kKillWait{1'000};

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string FindBlasProblem(const std::string& rank_binary, std::chrono::milliseconds deadline) {
  const auto run = StartCaptured({rank_binary, "--check-blas"});
  if (!run.ok()) return "mt-rank --check-blas: " + base::Message(run.status());
  if (!EndsWithin(*run, deadline)) {
    SignalProcess(run->process, SIGKILL);
    if (EndsWithin(*run, kKillWait)) ::waitpid(run->pid, nullptr, WNOHANG);
    return fmt::format("mt-rank --check-blas has not ended within {:.3g} s",
                       std::chrono::duration<double>(deadline).count());
  }
  int status = 0;
  if (::waitpid(run->pid, &status, WNOHANG) != run->pid)
    return "mt-rank --check-blas: its exit cannot be collected";
  if (WIFSIGNALED(status)) {
    return fmt::format(
        "mt-rank --check-blas was ended by signal {} ({}): OpenBLAS takes kernels that this "
        "processor cannot execute; start the worker with OPENBLAS_CORETYPE=Haswell, or Nehalem",
        WTERMSIG(status), sigdescr_np(WTERMSIG(status)));
  }
  std::string said = FirstLine(OutputOf(*run));
  switch (WEXITSTATUS(status)) {
    case control::kExitDone:
      log::Info("the BLAS of CPU slots multiplies rightly", {{"blas", said}});
      return "";
    case control::kExitDevice:
      return said;
    default:
      return fmt::format("mt-rank --check-blas, exit code {}: {}", WEXITSTATUS(status), said);
  }
}

}  // namespace mt::node
