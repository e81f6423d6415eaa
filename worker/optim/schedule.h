// The constants of a run's optimizer, from its job: which rule with which numbers, and what the
// StepScalars block needs to advance by itself (learning rate, weight decay, clipping, loss scale).
// Formulas: kernels/ops/step_scalars.h, update.h.
#pragma once

#include <cstdint>

#include "kernels/ops/step_scalars.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::optim {

enum class OptimizerKind : uint8_t { kAdamW, kSgd };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // of AdamW
  double momentum = 0.9;                          // of SGD

  // State tensors beside the master weights (params::StateShare::moments).
  int moments() const;
};

// Of a completed job (spec::CompleteJob). CHECKs that the job asks for what is built. With a batch
// ramp, batch_samples is the last size: the caller sets each step's own.
kernels::StepConstants ConstantsFromJob(const megatrain::v1::JobSpec& job);
// Dynamic under fp16, else a static 1, where the job does not choose.
kernels::LossScaleConstants LossScaleFromJob(const megatrain::v1::JobSpec& job);
OptimizerConfig OptimizerFromJob(const megatrain::v1::JobSpec& job);

}  // namespace mt::optim
