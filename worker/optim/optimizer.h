// The update rule over the flat buffers: AdamW (Loshchilov & Hutter 2019, algorithm 2) or SGD with
// momentum. Buckets are updated in the order in which the next forward reads their weights, and
// weight decay is a property of the bucket. Everything that changes from step to step is read on
// the device from the StepScalars block, so that an update needs no value from the host.
#pragma once

#include "kernels/core/device.h"
#include "kernels/ops/update.h"
#include "worker/optim/schedule.h"
#include "worker/parallel/gradient_sync.h"
#include "worker/params/param_store.h"

namespace mt::optim {

// Holds configuration only; the state is the store's. One thread at a time. Enqueues kernels and
// never blocks on a GPU.
class Optimizer {
 public:
  // `ops` and `store` must outlive the optimizer. CHECKs that the store keeps config.moments()
  // moments.
  Optimizer(const kernels::UpdateOps* ops, const params::ParamStore* store,
            const OptimizerConfig& config);

  // Updates the elements whose state this replica keeps, in every bucket, and starts the all-gather
  // of each bucket's weights as soon as the bucket is updated (`sync` may be null only where the
  // state is not sharded, CHECK). Where scalars->skip is set nothing is written; the all-gathers,
  // which are issued on every replica, then move unchanged bits.
  void Update(kernels::Stream& stream, const kernels::StepScalars* scalars,
              parallel::GradientSync* sync = nullptr) const;

 private:
  void UpdateBucket(kernels::Stream& stream, int bucket, const kernels::StepScalars* scalars) const;

  const kernels::UpdateOps* ops_;
  const params::ParamStore* store_;
  OptimizerConfig config_;
};

}  // namespace mt::optim
