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

// Writes the initial values of this rank's part of every parameter: all of the weights, and of the
// master copy the part that this replica keeps. Each value is rounded once to the master's type and
// from there to the weights' type. Padding and alignment gaps stay zero, as Bind left them. Work is
// enqueued on `stream`; no communication is needed, because every rank computes all values it
// holds.
void InitializeParams(kernels::Stream& stream, const InitArgs& args, const ParamStore& store);

// Rounds the part of the master that this replica keeps into the weights, on `stream`. Does nothing
// where the weights are the master (fp32, fp64). Where the optimizer's state is sharded, the
// weights must be all-gathered afterwards.
void RoundMaster(kernels::Stream& stream, const kernels::VectorOps& vector,
                 const ParamStore& store);

}  // namespace mt::params
