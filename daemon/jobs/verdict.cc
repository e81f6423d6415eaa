// Exit codes and signals to causes, and the sentence that names the culprit.
#include "daemon/jobs/verdict.h"

#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "common/control/rank_exit_codes.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

// "SIGKILL"; "signal 34" where sigabbrev_np has no name, as for real-time signals.
std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

// An agent of before exit_unknown was there says so by a fault without code and signal.
bool ExitIsUnknown(const v1::RankStatus& status) {
  return status.exited() &&
         (status.exit_unknown() ||
          (status.state() == v1::FAULTED && status.exit_code() == 0 && status.exit_signal() == 0));
}

// What follows "rank 1 on node n".
std::string HowItEnded(const v1::RankStatus& status) {
  if (!status.exited()) return " reported a fault";
  if (ExitIsUnknown(status)) {
    // The agent's message says why: its shim ended before it, most often.
    return status.message().empty() ? ": how it ended is not known (its shim was gone)"
                                    : ": how it ended is not known";
  }
  if (status.exit_signal() != 0) {
    return fmt::format(" was ended by {} (signal {})", SignalName(status.exit_signal()),
                       status.exit_signal());
  }
  return fmt::format(" exited with code {}", status.exit_code());
}

}  // namespace

v1::Cause CauseOfExit(int exit_code, int exit_signal) {
  if (exit_signal != 0) return v1::INTERNAL;
  return static_cast<v1::Cause>(control::MeaningOfExit(exit_code).cause);
}

bool IsFailure(const v1::RankReport& report) {
  const v1::RankStatus& status = report.status();
  return status.state() == v1::FAULTED ||
         (status.exited() &&
          (status.exit_unknown() || status.exit_code() != 0 || status.exit_signal() != 0));
}

Verdict JudgeRank(const v1::RankReport& report) {
  const v1::RankStatus& status = report.status();
  Verdict verdict{.cause = report.cause() != v1::CAUSE_UNSPECIFIED
                               ? report.cause()
                               : CauseOfExit(status.exit_code(), status.exit_signal())};
  verdict.rank = status.rank();
  verdict.message =
      fmt::format("rank {} on node {}{}", status.rank(), status.node(), HowItEnded(status));
  if (!status.message().empty()) verdict.message += fmt::format(": {}", status.message());
  verdict.last_log_lines.assign(report.last_log_lines().begin(), report.last_log_lines().end());
  verdict.secondary =
      status.exit_signal() == 0 && (status.exit_code() == control::kExitTransient ||
                                    (!status.exited() && verdict.cause == v1::NETWORK));
  if (status.exited() && !ExitIsUnknown(status) && status.exit_signal() == 0)
    verdict.exit_code = status.exit_code();
  verdict.own_fault =
      status.state() == v1::FAULTED && status.exit_signal() == 0 && !verdict.secondary;
  return verdict;
}

}  // namespace mt::daemon
