// A small state and its checkpoints, written by the real writer in several layouts, and ways to
// damage them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/dtype.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/inspect/place.h"

namespace mt::checkpoint {

struct StateTensor {
  kernels::DType dtype = kernels::DType::kF64;
  std::vector<int64_t> shape;
  std::vector<double> values;  // row-major
};

struct SavedState {
  int64_t step = 10;
  int64_t epoch = 1;
  Manifest manifest;  // numbers, facts, spec
  std::map<std::string, StateTensor> tensors;
};

// Two matrices, a cube, a vector of F32; numbers, facts and a spec of the layout 1 x 1 x 1.
SavedState MakeState(int64_t step = 10, int64_t epoch = 1);

// How the state is cut: one rank; two ranks that share first or last dimensions; two ranks whose
// slices begin and end anywhere, each up to three boxes of a matrix.
enum class Cut { kWhole, kRows, kColumns, kBuckets };

// Saves it under `directory` and returns its folder. CHECKs that it succeeds.
std::string SaveState(const std::string& directory, const SavedState& state, Cut cut = Cut::kWhole);

CheckpointPlace PlaceOf(const std::string& directory, const CheckpointId& id);

// Flips one bit of the byte at `offset`, from the end where that is negative.
void FlipBit(const std::string& path, int64_t offset);

}  // namespace mt::checkpoint
