// Saves a checkpoint: every rank writes one safetensors file with the slices it owns, and a
// manifest of them; then rank 0 reads those, writes the manifest and renames the folder. Before the
// rename the checkpoint does not exist; after it, it survives a power failure. Collective and
// blocking: all ranks of `group` call it with the same id and get the same status.
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

// A slice that this rank writes. The slices of all ranks must cover each tensor exactly once, which
// is checked before the commit.
struct SliceToSave {
  std::string key;  // "weights/layers.0.ffn.up.weight"
  kernels::DType dtype = kernels::DType::kF32;
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset;  // of the first element; as many dimensions as shape
  std::vector<int64_t> shape;
  const void* data = nullptr;  // host memory, unless SaveArgs::reader is set
  base::Runs places;           // of the elements from data on, row-major
  // Tensor ranks cut its tensor, a matrix, by columns: it is stored in parts that suit them
  // (format/column_parts.h).
  bool by_columns = false;
};

// The state to save and its destination.
struct SaveArgs {
  std::string directory;  // of the job's checkpoints; created if missing, unless it has a fence
  // Step, epoch, job, spec, numbers and facts, set by the caller on every rank; `tensors` and
  // `ranks` must be empty. Its block_bytes is that of the digests, the same on all ranks.
  Manifest manifest;
  std::vector<SliceToSave> slices;
  Status ready;  // an error: this rank's slices cannot be read, and the save fails on all ranks
  PieceReader* reader = nullptr;                // reads the slices; nullptr: host memory
  int threads = 1;                              // that write this rank's file from host memory
  comm::ProcessGroup* group = nullptr;          // all ranks of the job; nullptr: one rank
  kernels::Stream* stream = nullptr;            // for the group's collectives
  std::function<void(int64_t bytes)> progress;  // called after each write; may be empty
  // The fence that this run has raised. Rank 0 checks it before the folder is created and before it
  // gets its final name. nullptr: the directory is not fenced.
  const Fence* fence = nullptr;
  // Called on rank 0 where the fence is gone (CheckFence, kNotFound) before the folder is created;
  // OK: it is there again. Empty: that fails the save.
  std::function<Status(const Status& gone)> restore_fence;
  // For tests: called at each named point ("copy" and "over" of a save beside training, "begin",
  // "folder", "shard", "gathered", "manifest", "checked", "renamed"); an error is treated as a
  // failure at that point. May be empty.
  std::function<Status(std::string_view point)> failpoint;
};

struct SaveResult {
  std::string path;    // of the folder
  int64_t bytes = 0;   // of all files in the folder; rank 0 only
  double seconds = 0;  // duration on this rank
  std::string digest;  // of the manifest, "xxh3:<32 hex digits>"; rank 0 only
};

// Saves a checkpoint. Errors are the same on all ranks and name the rank where they occurred:
// kResourceExhausted (disk full), kAlreadyExists (this step and epoch are saved already; in a
// directory with a fence that is a save of this run that failed after its rename, and is replaced),
// kFailedPrecondition (another run holds the directory; this one must not write there any more; on
// rank 0 with FenceEpochOf), kNotFound (the directory or its fence is gone: a fault of the
// storage), I/O errors, and the group's. The unfinished folder is removed if that is possible and
// the directory is still this run's.
StatusOr<SaveResult> SaveCheckpoint(const SaveArgs& args);

}  // namespace mt::checkpoint
