// The meanings of the exit codes are those of the table in worker/rank/README.md.
#include "worker/node/ranks/rank_verdict.h"

#include <cstring>

#include <fmt/format.h>

#include "megatrain/v1/types.pb.h"
#include "worker/node/shim/rank_exit_codes.h"

namespace mt::node {
namespace {

struct CodeMeaning {
  int code;
  megatrain::v1::Cause cause;
  const char* text;
};

constexpr CodeMeaning kMeanings[] = {
    {kExitConfig, megatrain::v1::USER_ERROR, "the job cannot run as written"},
    {kExitInternal, megatrain::v1::INTERNAL, "engine or collectives"},
    {kExitDevice, megatrain::v1::HARDWARE, "device error"},
    {kExitCheckpoint, megatrain::v1::STORAGE, "checkpoint or data"},
    {kExitNonfinite, megatrain::v1::NUMERIC, "not finite"},
    {kExitTransient, megatrain::v1::NETWORK, "lost its peers"},
    {127, megatrain::v1::INTERNAL, "not started"},
};

CodeMeaning MeaningOf(int code) {
  for (const CodeMeaning& meaning : kMeanings) {
    if (meaning.code == code) return meaning;
  }
  return {code, megatrain::v1::INTERNAL, "unexpected"};
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
  } else if (exit.code == kExitDone) {
    verdict.clean = true;
    return verdict;
  } else {
    const CodeMeaning meaning = MeaningOf(exit.code);
    verdict.transient = exit.code == kExitTransient;
    verdict.cause = meaning.cause;
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
