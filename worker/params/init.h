// Initial values: a function of seed, parameter name and global element index, so that every layout
// starts from the same weights, bit for bit (docs/design/numerics.md#initial-values).
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

// Writes this rank's part of every parameter: the weights whole, and of the master what the replica
// keeps (each value rounded once to the master's type and from there to the weights'). Padding and
// the gaps between parameters stay as Bind left them, zero. Nothing needs to be gathered.
void InitializeParams(kernels::Stream& stream, const InitArgs& args, const ParamStore& store);

// Rounds what the replica keeps of the master into the weights; nothing to do where they are the
// master. Where the state is cut, the weights have to be gathered afterwards.
void RoundMaster(kernels::Stream& stream, const kernels::VectorOps& vector,
                 const ParamStore& store);

}  // namespace mt::params
