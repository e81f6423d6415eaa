// Saves a checkpoint: every rank writes one safetensors file with the slices it owns, rank 0 writes
// the manifest last and renames the folder. Until the rename the checkpoint does not exist; after
// it, it survives power loss. Collective: all ranks of `group` call it with the same id and get the
// same status. Blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/runs.h"
#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/dtype.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/comm/process_group.h"

namespace mt::checkpoint {

// A slice that this rank writes. The slices of all ranks must cover each tensor exactly once
// (checked before the commit).
struct SliceToSave {
  std::string key;  // "weights/layers.0.ffn.up.weight"
  kernels::DType dtype = kernels::DType::kF32;
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset;  // same rank as shape
  std::vector<int64_t> shape;
  const void* data = nullptr;  // the host's unless SaveArgs::reader reads it
  base::Runs places;           // of the slice's elements, row-major, from data on
};

struct SaveArgs {
  std::string directory;  // of the job; made if missing
  // step, epoch, job, spec, scalars, facts: filled in by the caller on every rank; tensors stays
  // empty.
  Manifest manifest;
  std::vector<SliceToSave> slices;
  PieceReader* reader = nullptr;                // of the slices' memory; nullptr: it is the host's
  comm::ProcessGroup* group = nullptr;          // all ranks of the job; nullptr: one rank
  kernels::Stream* stream = nullptr;            // with group
  std::function<void(int64_t bytes)> progress;  // called as bytes reach the disk; may be empty
  // What this run raised before it began; read on rank 0 before the folder is made and before it
  // gets its name. nullptr: the directory is not fenced.
  const Fence* fence = nullptr;
  // Test seam: called with the name of each point passed ("begin", "folder", "shard", "gathered",
  // "manifest", "checked", "renamed"); an error is treated as a failure there. May be empty.
  std::function<Status(std::string_view point)> failpoint;
};

struct SaveResult {
  std::string path;    // of the folder
  int64_t bytes = 0;   // of all files in it; on rank 0 only
  double seconds = 0;  // as this rank saw it
  std::string digest;  // of the manifest, "xxh3:<32 hex digits>"; on rank 0
};

// Errors (the same on all ranks, naming the rank it happened on): kResourceExhausted (disk full),
// kAlreadyExists (this step and epoch are saved already), kFailedPrecondition (another holds the
// directory: this run must write there no more), I/O, and the group's own. The unfinished folder is
// removed where that is possible and the directory is still ours.
StatusOr<SaveResult> SaveCheckpoint(const SaveArgs& args);

// Removes all but the `keep_last` newest complete checkpoints (never fewer than two) and every
// unfinished or ignored folder of an epoch below `epoch`. The fence, where there is one, is read
// before each removal: kFailedPrecondition where it is another's. One rank calls it. Returns the
// folders removed.
StatusOr<std::vector<std::string>> PruneCheckpoints(const std::string& directory, int64_t keep_last,
                                                    int64_t epoch, const Fence* fence = nullptr);

}  // namespace mt::checkpoint
