// What the end of a rank means: its exit, together with what it said of itself before. Pure.
#pragma once

#include <string>

#include "worker/node/ranks/rank_launcher.h"

namespace mt::node {

// The rank's own report; exit_code 0: it made none.
struct RankFaultReport {
  int cause = 0;  // megatrain.v1.Cause
  std::string message;
  int exit_code = 0;
};

struct RankVerdict {
  bool clean = false;      // exit 0
  bool transient = false;  // exit 75: a consequence of something elsewhere, as far as it knows
  int cause = 0;           // megatrain.v1.Cause, 0 where clean
  std::string
      message;  // "killed by signal 9 (Killed)", "exit code 74 (...): loss is nan at step 12"
};

RankVerdict JudgeExit(const RankExit& exit, const RankFaultReport& fault);

}  // namespace mt::node
