// The constants of a run's schedule, from its job: what the StepScalars block needs to advance by
// itself (learning rate, weight decay, clipping, loss scale). Formulas: kernels/ops/step_scalars.h.
#pragma once

#include "kernels/ops/step_scalars.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::optim {

struct AdamConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// Of a completed job (spec::CompleteJob). CHECKs that the job asks for what is built.
kernels::StepConstants ConstantsFromJob(const megatrain::v1::JobSpec& job);
// Dynamic under fp16, else a static 1, where the job does not choose.
kernels::LossScaleConstants LossScaleFromJob(const megatrain::v1::JobSpec& job);
AdamConfig AdamFromJob(const megatrain::v1::JobSpec& job);

}  // namespace mt::optim
