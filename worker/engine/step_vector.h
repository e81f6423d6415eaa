// The end-of-step vector: what every rank contributes to a step and all ranks know afterwards, in
// one all-reduce of eight doubles over the world (docs/design/gpu-engine.md#one-step).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/tensor.h"
#include "kernels/ops/step_scalars.h"

namespace mt::engine {

// This order is the layout of the reduction and the same on every rank of a job. Kernels read
// `sums` only; the doubles behind it are the engine's and the trainer's.
struct StepVector {
  kernels::EndOfStep sums;
  double command_bits = 0;   // of world rank 0: worker/train's CommandBits, else 0
  double fault = 0;          // number of ranks that report a fault
  double pipeline_wait = 0;  // share of the pass that a rank waited for the pipeline, added up
  double label_bytes = 0;    // of text, that the tokens stand for; NaN: not known
};
inline constexpr int64_t kStepVectorDoubles = 8;
static_assert(sizeof(StepVector) == kStepVectorDoubles * sizeof(double));
// Ops add to pairs of doubles, which lie side by side: (sum_squares, nonfinite) and (loss, tokens).
static_assert(offsetof(kernels::EndOfStep, nonfinite) ==
              offsetof(kernels::EndOfStep, sum_squares) + sizeof(double));
static_assert(offsetof(kernels::EndOfStep, tokens) ==
              offsetof(kernels::EndOfStep, loss) + sizeof(double));
static_assert(offsetof(StepVector, command_bits) == 4 * sizeof(double));

// The whole vector as the operand of its reduction: f64 [8].
inline kernels::Tensor AsTensor(StepVector* vector) {
  return {vector, kernels::DType::kF64, {kStepVectorDoubles}};
}

}  // namespace mt::engine
