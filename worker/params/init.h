// Initial values: a function of seed, parameter name and global element index, so that every layout
// starts from the same weights.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/ops/vector.h"
#include "worker/params/param_store.h"

namespace mt::params {

// Philox key of a parameter's initial values: XXH3 of its name, seeded with training.seed.
uint64_t InitKey(std::string_view name, int64_t seed);

struct InitArgs {
  const kernels::RandomOps* random = nullptr;
  const kernels::VectorOps* vector = nullptr;
  int64_t seed = 0;  // training.seed
};

// Writes master (rounded once to its type) and weights (rounded from it) of every parameter; padded
// rows and the gaps between parameters stay as Bind left them, zero.
void InitializeParams(kernels::Stream& stream, const InitArgs& args, const ParamStore& store);

}  // namespace mt::params
