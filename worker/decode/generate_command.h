// `mt-rank --generate DIR`, which `mtctl generate` runs: text from a checkpoint, on the CPU,
// without daemons and without touching the job.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "common/base/status.h"
#include "worker/decode/generate_flags.h"

namespace mt::decode {

struct GenerateArgs {
  std::string path;  // a directory of checkpoints, or one of them
  GenerateFlags flags;
  std::FILE* out = nullptr;  // texts or JSON; messages go to stderr
  bool terminal = false;     // `out` is one
  std::function<bool()> interrupted;
};

// Blocks until all is written. kCancelled: interrupted, what was there is written. Else what is
// wrong, in words for the user.
Status RunGenerate(const GenerateArgs& args);

}  // namespace mt::decode
