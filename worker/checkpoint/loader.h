// Loads slices of a checkpoint's tensors into memory, whatever layout saved them: a requested slice
// is assembled from all stored slices that overlap it. Of the ranks' manifests those are read whose
// ranks have slices of the tensors, of stored slices the blocks that hold something wanted, each
// verified against its digest. Blocking; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/runs.h"
#include "common/base/status.h"
#include "kernels/core/dtype.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

// A requested part of a tensor and its destination.
struct SliceToLoad {
  std::string key;  // "weights/<parameter>", as in the manifest
  // kF32 or kF64; where the stored type is the other one, elements are converted (rounded).
  kernels::DType dtype = kernels::DType::kF32;
  std::vector<int64_t> global_shape;  // must equal the stored shape
  std::vector<int64_t> offset;
  std::vector<int64_t> shape;
  void* data = nullptr;  // host memory, unless LoadArgs::put is set
  // Places of the slice's elements, row-major, from data on. What lies between them is padding: it
  // is left unchanged in host memory, and becomes zero if LoadArgs::put writes it.
  base::Runs places;
};

// Source and destinations of one load.
struct LoadArgs {
  std::string directory;  // of the checkpoints
  CheckpointId id;
  const Manifest* manifest = nullptr;  // as ReadManifest gives it
  std::vector<SliceToLoad> slices;
  int threads = 1;  // that read and check side by side, each a slice at a time
  // Copies host bytes to a slice's memory and blocks until they have arrived. Empty: slices are in
  // host memory. This and `progress` are called by one thread at a time.
  std::function<void(void* to, const void* from, int64_t bytes)> put;
  std::function<void(int64_t bytes)> progress;  // called per block that was read; may be empty
  base::FileOpener open{};                      // of the files of the checkpoint
};

// Loads all slices. kNotFound: no such tensor; kFailedPrecondition: its shape differs (both are
// named), or its type is neither F32 nor F64; kDataLoss: damaged bytes or a missing file (file and
// tensor are named); else I/O errors. Destinations are undefined after an error.
Status LoadTensors(const LoadArgs& args);

// Checks that a run of the job `current_json` may resume from this manifest. Model, data order and
// seeds must be equal; layout, precision, padding of the vocabulary, optimizer and recomputation
// may differ. (spec::ContinueCourse checks length and batch sizes.) kFailedPrecondition lists every
// difference as "field: checkpoint has A, job has B".
Status CheckSameRun(const Manifest& manifest, const std::string& current_json);

}  // namespace mt::checkpoint
