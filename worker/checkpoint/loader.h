// Loads slices of a checkpoint's tensors into memory, whatever layout saved them: a wanted slice is
// put together from all stored slices that overlap it, and every stored slice that is read is
// checked against its digest. Blocking; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/runs.h"
#include "common/base/status.h"
#include "kernels/core/dtype.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::checkpoint {

struct SliceToLoad {
  std::string key;
  kernels::DType dtype = kernels::DType::kF32;  // must be the stored type
  std::vector<int64_t> global_shape;            // must be the stored shape
  std::vector<int64_t> offset;
  std::vector<int64_t> shape;
  void* data = nullptr;  // the host's unless LoadArgs::put writes to it
  // Of the slice's elements, row-major, from data on. What lies between them is padding: it keeps
  // its values on the host, becomes zero where LoadArgs::put writes.
  base::Runs places;
};

struct LoadArgs {
  std::string directory;
  CheckpointId id;
  const Manifest* manifest = nullptr;
  std::vector<SliceToLoad> slices;
  // Copies bytes of the host to where slices lie, and blocks until they are there. Empty: slices
  // lie in the host's memory.
  std::function<void(void* to, const void* from, int64_t bytes)> put;
  std::function<void(int64_t bytes)> progress;  // may be empty
};

// kNotFound: no such tensor; kFailedPrecondition: another shape or type (names both); kDataLoss:
// damaged bytes (names file and tensor). Destinations are undefined after an error.
Status LoadTensors(const LoadArgs& args);

// Whether a run of the job `current_json` may go on from this manifest: model, data order, global
// batch, seeds, run length and the cut over tensor ranks and stages must be the same; replicas,
// ZeRO stage, schedule and recomputation may differ. kFailedPrecondition lists every difference as
// "field: checkpoint has A, job has B".
Status CheckSameRun(const Manifest& manifest, const std::string& current_json);

}  // namespace mt::checkpoint
