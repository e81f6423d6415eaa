// Tensor and sequence parallelism: what a transformer layer asks of the ranks that share its
// matrices (Shoeybi et al. 2019, section 3: the operators f and g; Korthikanti et al. 2022, section
// 4.2.2: g-bar). Every branch is column-parallel, then row-parallel, so all it needs are two calls,
// forward and backward alike: Gather before it and Reduce behind it.
// Legend: t ranks, T = s b rows of a matrix product, R rows between them (T / t under sequence
// parallelism, else T), h columns.
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "worker/comm/process_group.h"

namespace mt::parallel {

// Used by one thread at a time; every rank of the group makes the same calls in the same order. The
// first error of the group sticks: later calls do nothing, and whoever drives the step looks at
// status() when an action is over. Calls enqueue on the stream (on a CPU slot: block).
class TensorParallel {
 public:
  // Alone: every call passes its input through.
  TensorParallel() = default;
  // `group`: the ranks that share the matrices, in the mesh's order. It must outlive this.
  TensorParallel(comm::ProcessGroup* group, bool sequence_parallel)
      : group_(group), sequence_parallel_(sequence_parallel && group->size() > 1) {}

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  bool sequence_parallel() const { return sequence_parallel_; }

  // Before a branch (forward: the norm's output; backward: the gradient of the branch's output).
  // Under sequence parallelism all-gathers rows [R, h] into `whole` [T, h] and returns it; else
  // returns `part` itself, which all ranks hold alike, and does not touch `whole`.
  kernels::Tensor Gather(kernels::Stream& stream, const kernels::Tensor& part,
                         const kernels::Tensor& whole);
  // Behind a branch (forward: its partial output; backward: its partial input gradient), [T, h]:
  // under sequence parallelism reduce-scatters into `part` [R, h] and returns it; else all-reduces
  // `whole` in place and returns it. `part` may be the rank's own rows of `whole`.
  kernels::Tensor Reduce(kernels::Stream& stream, const kernels::Tensor& whole,
                         const kernels::Tensor& part);
  // out [t, n...] = every rank's in [n...], in rank order: the loss' statistics.
  void AllGather(kernels::Stream& stream, const kernels::Tensor& in, const kernels::Tensor& out);

  // Around every collective; `begin` tells which end. For phase times; may be empty.
  void SetOnCollective(std::function<void(bool begin)> hook) { on_collective_ = std::move(hook); }
  const Status& status() const { return status_; }

 private:
  template <class Call>
  void Run(const Call& call);

  comm::ProcessGroup* group_ = nullptr;
  bool sequence_parallel_ = false;
  std::function<void(bool)> on_collective_;
  Status status_;
};

}  // namespace mt::parallel
