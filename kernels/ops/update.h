// The optimizer's side of a step, on flat shards: square sums, the scalar block, the update rules.
// Per-step values are read through pointers into the StepScalars block. Legend: n elements of a
// shard.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/step_scalars.h"

namespace mt::kernels {

struct SquareSumArgs {
  Tensor gradient;  // accumulator type [n]
  Tensor out;  // f64 [2], added to: sum of squares, number of NaN or Inf elements (which are left
               // out of the sum)
};

struct AdamWArgs {
  Tensor gradient;     // accumulator type [n]
  Tensor master;       // accumulator type [n]
  Tensor m, v;         // accumulator type [n]
  Tensor model_copy;   // bf16 / f16 [n]; absent where the weights are the master (fp32, fp64)
  bool decay = false;  // whether weight decay applies to this region
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  const StepScalars* scalars = nullptr;  // factor, lr, weight_decay, bias corrections, skip
};

struct SgdArgs {
  Tensor gradient;     // accumulator type [n]
  Tensor master;       // accumulator type [n]
  Tensor momentum;     // accumulator type [n]; absent where `mu` is 0
  Tensor model_copy;   // as AdamW's
  bool decay = false;  // whether weight decay applies to this region
  double mu = 0.9;
  const StepScalars* scalars = nullptr;  // factor, lr, weight_decay, skip
};

class UpdateOps {
 public:
  virtual ~UpdateOps() = default;
  virtual void SquareSum(Stream& stream, const SquareSumArgs& args) const = 0;
  // Runs AdvanceStepScalars on the device. `vector` points to an EndOfStep in device memory.
  virtual void Advance(Stream& stream, StepScalars* scalars, const EndOfStep* vector,
                       const StepConstants& constants) const = 0;
  // Loshchilov & Hutter 2019, Apex's order of operations:
  // m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (m / c1 / (sqrt(v / c2) + eps) + wd p),
  // with g = gradient * factor. Writes nothing when scalars->skip is set.
  // The master is rounded into model_copy once.
  virtual void AdamW(Stream& stream, const AdamWArgs& args) const = 0;
  // Gradient descent with momentum as PyTorch has it (no dampening, not Nesterov's), weight decay
  // decoupled as AdamW's: u = mu u + g; p -= lr (u + wd p). Starts from u = 0. The same rules for
  // skip and model_copy.
  virtual void Sgd(Stream& stream, const SgdArgs& args) const = 0;
};

}  // namespace mt::kernels
