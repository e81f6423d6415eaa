// The constants of a run's optimizer, derived from its job: the update rule with its parameters,
// and everything from which the StepScalars block advances by itself (learning rate, weight decay,
// clipping, loss scale). Formulas: kernels/ops/step_scalars.h and kernels/ops/update.h.
#pragma once

#include <cstdint>

#include "common/spec/course.h"
#include "kernels/ops/step_scalars.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::optim {

enum class OptimizerKind : uint8_t { kAdamW, kSgd };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // AdamW
  double momentum = 0.9;                          // SGD

  // Number of state tensors beside the master weights (params::StateShare::moments).
  int moments() const;
};

// The constants of a completed job (spec::CompleteJob). CHECKs that validation has let only
// supported values pass. With a batch size ramp, batch_samples is the final size; the caller sets
// the size of each step.
kernels::StepConstants ConstantsFromJob(const megatrain::v1::JobSpec& job);
// The same of a run with this course: the schedule's lengths are those of its samples.
kernels::StepConstants ConstantsFromJob(const megatrain::v1::JobSpec& job,
                                        const spec::Course& course);
// The job's loss scaling; where it chooses none, dynamic under fp16 and a static scale of 1
// otherwise.
kernels::LossScaleConstants LossScaleFromJob(const megatrain::v1::JobSpec& job);
// Update rule and parameters. CHECKs that the type is AdamW or SGD.
OptimizerConfig OptimizerFromJob(const megatrain::v1::JobSpec& job);

}  // namespace mt::optim
