// Data parallelism: replicas of the whole model, each with its share of a step's samples. Gradients
// are summed bucket by bucket as backward completes them (Li et al. 2020, PyTorch DDP §3.2), small
// vectors of doubles (losses, norms, words) at the end of a step. Gradients carry a constant seed
// of 1 / (global batch * sequence), so a plain sum over replicas is the global batch's gradient.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/step_scalars.h"
#include "worker/comm/process_group.h"
#include "worker/params/param_store.h"

namespace mt::parallel {

// Used by one thread at a time. The first error of the group sticks: later calls return it at once,
// so callers inside backward may look at status() when it is over.
class DataParallel {
 public:
  // `group` holds the replicas; nullptr: there is one. It must outlive this.
  explicit DataParallel(comm::ProcessGroup* group) : group_(group) {}

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }

  // Sums the bucket's gradients over the replicas, in place; all replicas hold the same bits
  // afterwards (ZeRO stage 0). Every replica calls it for the same buckets in the same order.
  Status ReduceBucket(kernels::Stream& stream, const params::ParamStore& store, int bucket);
  // Sums f64 [n] over the replicas in place.
  Status SumDoubles(kernels::Stream& stream, const kernels::Tensor& values);
  // The end-of-step vector, in device memory, summed in place.
  Status ReduceEndOfStep(kernels::Stream& stream, kernels::EndOfStep* vector);

  const Status& status() const { return status_; }

 private:
  Status Sum(kernels::Stream& stream, void* data, int64_t count, kernels::DType dtype);

  comm::ProcessGroup* group_;
  Status status_;
};

}  // namespace mt::parallel
