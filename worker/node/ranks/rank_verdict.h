// What the end of a rank means: its exit, together with the fault that it reported before. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "worker/node/ranks/rank_launcher.h"

namespace megatrain::v1 {
enum Cause : int;
}

namespace mt::node {

// The rank's own report of why it fails; exit_code 0: it made none.
struct RankFaultReport {
  megatrain::v1::Cause cause{};  // CAUSE_UNSPECIFIED: the exit tells
  std::string message;
  int exit_code = 0;        // rank_exit_codes.h
  std::string reason;       // stable reason (common/rpc/reason.h); empty: none
  int64_t fence_epoch = 0;  // RankFault.fence_epoch
};

struct RankVerdict {
  bool clean = false;            // exit code 0
  bool transient = false;        // exit code 75: the rank knows only that it lost a peer
  megatrain::v1::Cause cause{};  // CAUSE_UNSPECIFIED if clean
  // "killed by signal 9 (Killed)", "loss is nan at step 12; exit code 74 (...)". Empty if clean.
  std::string message;
  int64_t fence_epoch = 0;  // as the rank has reported
};

// The rank's own report decides the cause and opens the message; the exit fills in what it lacks.
RankVerdict JudgeExit(const RankExit& exit, const RankFaultReport& fault);

}  // namespace mt::node
