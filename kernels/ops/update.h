// The optimizer's part of a step, on flat shards: gradient norm, the scalar block, the update
// rules. Values that change per step are read through pointers into the StepScalars block, so no
// call waits for the host.
// Legend: n elements of a shard.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/step_scalars.h"

namespace mt::kernels {

// out += (sum of squares, number of non-finite elements) of a gradient shard.
struct SquareSumArgs {
  Tensor gradient;  // accumulator type [n]
  // f64 [2], added to: sum of squares in fp64, and the number of NaN or infinite elements, which
  // are left out of the sum.
  Tensor out;
};

// Operands of one AdamW update; master, m and v are updated in place.
struct AdamWArgs {
  Tensor gradient;     // accumulator type [n]
  Tensor master;       // accumulator type [n]
  Tensor m, v;         // accumulator type [n]
  Tensor model_copy;   // bf16 or f16 [n], written; absent if the model uses the master weights
                       // (fp32, fp64)
  bool decay = false;  // whether weight decay applies to this region
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  const StepScalars* scalars =
      nullptr;  // in device memory; reads factor, lr, weight_decay, bias corrections, skip
};

// Operands of one SGD update; master and momentum are updated in place.
struct SgdArgs {
  Tensor gradient;     // accumulator type [n]
  Tensor master;       // accumulator type [n]
  Tensor momentum;     // accumulator type [n]; may be absent only if mu is 0
  Tensor model_copy;   // as in AdamWArgs
  bool decay = false;  // whether weight decay applies to this region
  double mu = 0.9;
  const StepScalars* scalars = nullptr;  // in device memory; reads factor, lr, weight_decay, skip
};

// Every call enqueues work on `stream` and returns; it aborts (CHECK) on inconsistent shapes. Sums
// have a fixed order: equal calls give equal bits.
class UpdateOps {
 public:
  virtual ~UpdateOps() = default;
  virtual void SquareSum(Stream& stream, const SquareSumArgs& args) const = 0;
  // Runs AdvanceStepScalars on the device. `scalars` and `vector` point into device memory.
  virtual void Advance(Stream& stream, StepScalars* scalars, const EndOfStep* vector,
                       const StepConstants& constants) const = 0;
  // AdamW (Loshchilov & Hutter 2019), in the order of operations of NVIDIA Apex's FusedAdam:
  //   g = gradient * factor
  //   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
  //   p -= lr (m / c1 / (sqrt(v / c2) + eps) + weight_decay p)
  // with bias corrections c1, c2 and p the master, which is rounded into model_copy once. Writes
  // nothing if scalars->skip is set.
  virtual void AdamW(Stream& stream, const AdamWArgs& args) const = 0;
  // SGD with momentum as in PyTorch (no dampening, no Nesterov), but with decoupled weight decay as
  // in AdamW: u = mu u + g; p -= lr (u + weight_decay p), u starting at 0. Rules for skip and
  // model_copy are those of AdamW.
  virtual void Sgd(Stream& stream, const SgdArgs& args) const = 0;
};

}  // namespace mt::kernels
