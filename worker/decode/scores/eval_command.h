// `mt-rank --eval DIR`, which `mtctl eval` runs: scores of a checkpoint, on the CPU, without
// daemons and without touching the job.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "common/base/status.h"
#include "worker/decode/scores/eval_flags.h"

namespace mt::decode {

struct EvalArgs {
  std::string path;  // a directory of checkpoints, or one of them
  EvalFlags flags;
  std::FILE* out = nullptr;  // scores or JSON; progress and messages go to stderr
  bool terminal = false;     // `out` is one
  bool live = false;         // stderr is one, on which a line can be written over
  std::function<bool()> interrupted;
};

// Blocks until all is written. kCancelled: interrupted, the tasks that were done are written. Else
// what is wrong, in words for the user.
Status RunEval(const EvalArgs& args);

}  // namespace mt::decode
