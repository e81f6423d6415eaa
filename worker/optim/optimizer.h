// The update rule over flat buffers: square sums of the slices that this replica owns, then one
// AdamW per bucket (Loshchilov & Hutter 2019), with decay as a property of the bucket. Everything
// that changes from step to step is read on the device through the StepScalars block.
#pragma once

#include <cstdint>

#include "kernels/core/device.h"
#include "kernels/ops/update.h"
#include "worker/optim/schedule.h"
#include "worker/params/param_store.h"

namespace mt::optim {

// Stateless but for what it points to; one thread at a time. Nothing blocks on a GPU.
class Optimizer {
 public:
  // Both must outlive the optimizer.
  Optimizer(const kernels::UpdateOps* ops, const params::ParamStore* store, AdamConfig config)
      : ops_(ops), store_(store), config_(config) {}

  // Adds the sum of squares and the number of non-finite elements of this replica's slice of the
  // bucket to out (f64 [2]). Over all replicas each element counts once; call it on reduced
  // gradients.
  void SquareSum(kernels::Stream& stream, int bucket, int64_t dp_rank,
                 const kernels::Tensor& out) const;
  // Updates every bucket, in the order in which the next forward reads them. Writes nothing where
  // scalars->skip is set.
  void Update(kernels::Stream& stream, const kernels::StepScalars* scalars) const;

 private:
  void UpdateBucket(kernels::Stream& stream, const params::Bucket& bucket,
                    const kernels::StepScalars* scalars) const;

  const kernels::UpdateOps* ops_;
  const params::ParamStore* store_;
  AdamConfig config_;
};

}  // namespace mt::optim
