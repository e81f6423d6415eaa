// Copies a complete checkpoint into another directory. Blocking.
#pragma once

#include <functional>
#include <string>

#include "common/base/status.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/checkpoint/inspect/verify.h"

namespace mt::checkpoint {

struct CopyArgs {
  CheckpointPlace from;
  std::string to;          // directory of checkpoints; made if it is missing
  int threads = 1;         // of the check
  BytesProgress progress;  // may be empty; each byte counts twice: written, and read back
  // Asked between two pieces of a file; true ends the copy (kCancelled). May be empty.
  std::function<bool()> is_cancelled;
};

// The copy is written beside its place under a `.tmp` name, read back and held against the digests,
// synced, and only then gets its name: a crash leaves no checkpoint. The manifest's files, the
// manifest, EVAL.json and TAG.json are copied; a pin is not. Another checkpoint there that has the
// tag loses it, as where a run saves with it again. Returns the copy's folder. kAlreadyExists: it
// is there, or its `.tmp` is; kFailedPrecondition: a job's fence, or a fence under which the copy
// would not count, is there; kDataLoss: the original is damaged. After an error no folder is left,
// as far as it can be removed.
StatusOr<std::string> CopyCheckpoint(const CopyArgs& args);

}  // namespace mt::checkpoint
