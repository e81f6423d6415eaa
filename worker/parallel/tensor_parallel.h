// Tensor and sequence parallelism: the communication that a transformer layer needs with the ranks
// that share its matrices (Shoeybi et al. 2019, section 3, operators f and g; Korthikanti et al.
// 2022, section 4.2.2, operator g-bar). Every branch is a column-parallel product followed by a
// row-parallel one, so two calls suffice, in forward and backward alike: Gather before the branch
// and Reduce behind it.
// Legend: t ranks, T = s b rows of a matrix product, R rows between products (T / t under sequence
// parallelism, else T), h columns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/add_norm.h"
#include "worker/comm/process_group.h"
#include "worker/parallel/comm_spans.h"
#include "worker/parallel/lane.h"
#include "worker/parallel/tensor_routes.h"

namespace mt::parallel {

// Used by one thread at a time; every rank of the group makes the same calls in the same order. The
// first error of the group is kept: later calls do nothing, and the driver of the step checks
// status() at the end of each action. Calls enqueue on the stream (on a CPU slot they block).
class TensorParallel {
 public:
  // A single rank: every call returns its input.
  TensorParallel() = default;
  // `group`: the ranks that share the matrices, in the mesh's order; `copies`: the same by copies,
  // or nullptr. Both must outlive this.
  TensorParallel(comm::ProcessGroup* group, bool sequence_parallel,
                 comm::ProcessGroup* copies = nullptr)
      : group_(group),
        routes_(group, copies),
        sequence_parallel_(sequence_parallel && group->size() > 1) {}

  // A branch's input, the reduction of its gradient, and the gather of the next branch's gradient.
  static constexpr int kMostPending = 3;

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  bool sequence_parallel() const { return sequence_parallel_; }
  // By which group calls go.
  TensorRoutes& routes() { return routes_; }
  const TensorRoutes& routes() const { return routes_; }

  // Called before a branch (in forward on the norm's output, in backward on the gradient of the
  // branch's output). Under sequence parallelism it all-gathers rows [R, h] into `whole` [T, h] and
  // returns `whole`; otherwise it returns `part`, which is equal on all ranks, and does not touch
  // `whole`.
  kernels::Tensor Gather(kernels::Stream& stream, const kernels::Tensor& part,
                         const kernels::Tensor& whole);
  // Called behind a branch (in forward on its partial output, in backward on its partial input
  // gradient), [T, h]. Under sequence parallelism it reduce-scatters into `part` [R, h], which must
  // be the rank's own rows of `whole` or apart from it, and returns that; or, where the group
  // leaves the terms of the sum (ProcessGroup::terms) and `part` is in `whole`, it returns
  // those, [R, h] each, for the kernel that adds them: they stay until the next sum begins.
  // Otherwise it all-reduces `whole` in place and returns `whole`. The bits of all forms are the
  // same.
  kernels::Partials Reduce(kernels::Stream& stream, const kernels::Tensor& whole,
                           const kernels::Tensor& part);
  // A Gather or Reduce that was begun.
  struct Pending {
    kernels::Tensor result;      // what a Gather returns; filled for whom Finish was given
    kernels::Partials sum;       // what a Reduce returns
    Lane::Ticket ticket = 0;     // 0: nothing is to await
    CommSpans* spans = nullptr;  // of a call that is timed
  };
  // Gather and Reduce in two halves: what the stream is given between them runs beside the
  // collective, and must neither read what it writes nor write what it reads. Every Pending is
  // finished once, in any order; at most kMostPending are begun and not finished, and no other call
  // is made meanwhile, since the group runs its calls in one order. Without a lane (RunBeside) the
  // first half does it all.
  [[nodiscard]] Pending StartGather(kernels::Stream& stream, const kernels::Tensor& part,
                                    const kernels::Tensor& whole);
  [[nodiscard]] Pending StartReduce(kernels::Stream& stream, const kernels::Tensor& whole,
                                    const kernels::Tensor& part);
  // What `stream` is given from now on finds the collective done. Returns its result, of a Gather
  // and of a Reduce.
  kernels::Tensor Finish(kernels::Stream& stream, const Pending& pending);
  kernels::Partials FinishSum(kernels::Stream& stream, const Pending& pending);
  // Whether a Gather into `whole` [T, h], or a Reduce of it into its own rows, leaves this rank's
  // rows alone: they may be read, or be written, while it runs.
  bool GathersBesideOwnRows(const kernels::Tensor& whole) const;
  bool ReducesBesideOwnRows(const kernels::Tensor& whole) const;
  // Gives the halves a lane of this device, which must outlive this. For devices that enqueue: on
  // the CPU a thread would compete with what it runs beside.
  void RunBeside(kernels::Device* device) { lane_ = Lane::Create(device, "mt-tp", kMostPending); }

  // out [t, n...] = every rank's in [n...], in rank order; used for the statistics of the
  // vocabulary parallel loss. A single rank gathers in place (CHECK).
  void AllGather(kernels::Stream& stream, const kernels::Tensor& in, const kernels::Tensor& out);

  // Sets a hook that is called before (true) and after (false) every collective, to measure phase
  // times. May be empty.
  void SetOnCollective(std::function<void(bool begin)> hook) { on_collective_ = std::move(hook); }
  // Times collectives; `spans` must outlive this.
  void TimeWith(CommSpans* spans) { spans_ = spans; }
  // OK, or the first error of a collective.
  const Status& status() const { return status_; }

 private:
  template <class Call>
  void Run(const Call& call);
  // Runs a collective on the stream.
  template <class Call>
  void RunInline(kernels::Stream& stream, const Call& call);
  // Posts to the lane, or runs at once without one.
  void Start(kernels::Stream& stream, Lane::Call call, Pending* pending);
  void Await(kernels::Stream& stream, const Pending& pending);
  // The call of a Reduce, and what it returns.
  Lane::Call SumCall(const kernels::Tensor& whole, const kernels::Tensor& part,
                     kernels::Partials* sum) const;
  // The terms of a sum in the order of their addition; none where the sum itself is formed.
  kernels::Partials TermsOf(const kernels::Tensor& whole, const kernels::Tensor& part) const;

  comm::ProcessGroup* group_ = nullptr;
  TensorRoutes routes_;
  bool sequence_parallel_ = false;
  std::function<void(bool)> on_collective_;
  CommSpans* spans_ = nullptr;
  Status status_;
  std::unique_ptr<Lane> lane_;  // nullptr: none
  int num_pending_ = 0;         // on the lane
};

}  // namespace mt::parallel
