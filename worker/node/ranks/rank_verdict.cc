// What an exit code means is common/control/rank_exit_codes.h.
#include "worker/node/ranks/rank_verdict.h"

#include <cstring>

#include <fmt/format.h>

#include "common/control/rank_exit_codes.h"
#include "megatrain/v1/types.pb.h"

namespace mt::node {
namespace {

megatrain::v1::Cause CauseOf(const control::RankExitMeaning& meaning) {
  return static_cast<megatrain::v1::Cause>(meaning.cause);
}

}  // namespace

RankVerdict JudgeExit(const RankExit& exit, const RankFaultReport& fault) {
  RankVerdict verdict;
  std::string how;
  if (!exit.known) {
    verdict.cause = megatrain::v1::INTERNAL;
    how = exit.error.empty() ? "its exit status is not known" : exit.error;
  } else if (exit.signal != 0) {
    // A SIGKILL from outside mostly comes from the kernel's OOM killer, but nothing says so.
    verdict.cause = megatrain::v1::INTERNAL;
    how = fmt::format("killed by signal {} ({}){}", exit.signal, ::strsignal(exit.signal),
                      exit.core ? ", core dumped" : "");
  } else if (exit.code == control::kExitDone) {
    verdict.clean = true;
    return verdict;
  } else {
    const control::RankExitMeaning meaning = control::MeaningOfExit(exit.code);
    verdict.transient = exit.code == control::kExitTransient;
    verdict.cause = CauseOf(meaning);
    how = fmt::format("exit code {} ({})", exit.code, meaning.text);
    if (!exit.error.empty()) how += ": " + exit.error;
  }
  if (fault.exit_code != 0) {
    verdict.fence_epoch = fault.fence_epoch;
    if (fault.cause != megatrain::v1::CAUSE_UNSPECIFIED) verdict.cause = fault.cause;
    how = fault.message.empty() ? how : fmt::format("{}; {}", fault.message, how);
  }
  verdict.message = how;
  return verdict;
}

}  // namespace mt::node
