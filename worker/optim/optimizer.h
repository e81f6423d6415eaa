// The update rule over flat buffers, bucket by bucket in the order in which the next forward reads
// them: AdamW (Loshchilov & Hutter 2019) or SGD with momentum, with decay as a property of the
// bucket. Everything that changes from step to step is read on the device through the StepScalars
// block.
#pragma once

#include "kernels/core/device.h"
#include "kernels/ops/update.h"
#include "worker/optim/schedule.h"
#include "worker/parallel/gradient_sync.h"
#include "worker/params/param_store.h"

namespace mt::optim {

// Stateless but for what it points to; one thread at a time. Nothing blocks on a GPU.
class Optimizer {
 public:
  // Both must outlive the optimizer; the store keeps config.moments() moments.
  Optimizer(const kernels::UpdateOps* ops, const params::ParamStore* store,
            const OptimizerConfig& config);

  // Updates what this replica keeps state of, in every bucket, and has each bucket's weights
  // gathered as soon as it is done (`sync` may be null where no state is cut). Writes nothing where
  // scalars->skip is set; the gathers, the same on every replica, then move equal bits.
  void Update(kernels::Stream& stream, const kernels::StepScalars* scalars,
              parallel::GradientSync* sync = nullptr) const;

 private:
  void UpdateBucket(kernels::Stream& stream, int bucket, const kernels::StepScalars* scalars) const;

  const kernels::UpdateOps* ops_;
  const params::ParamStore* store_;
  OptimizerConfig config_;
};

}  // namespace mt::optim
