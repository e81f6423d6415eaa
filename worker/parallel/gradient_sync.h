// The data side of a step: what happens to gradients between backward and the update, and to
// weights between the update and the next forward. Buckets are summed over the replicas as backward
// completes them (Li et al. 2020, PyTorch DDP §3.2): all-reduced under ZeRO stage 0,
// reduce-scattered under stage 1 (Rajbhandari et al. 2020 §5); at the end the tied word table is
// exchanged between its two stages and partial gradients are summed over the tensor axis; after the
// update the weights are all-gathered under stage 1. Gradients carry the constant seed 1 / (global
// batch * sequence), so plain sums are the global batch's gradient. Mathematics, bytes and steps:
// README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/ops/step_scalars.h"
#include "kernels/ops/update.h"
#include "kernels/ops/vector.h"
#include "worker/comm/process_group.h"
#include "worker/memory/memory.h"
#include "worker/parallel/comm_thread.h"
#include "worker/params/param_store.h"

namespace mt::parallel {

// The groups of one rank; nullptr where the axis has size 1. They must outlive who uses them.
struct SyncGroups {
  comm::ProcessGroup* dp_reduce = nullptr;  // the replicas; used by the reducing thread alone
  // The replicas again, for the gathering thread. May be dp_reduce: a step's first sum waits for
  // the last gather.
  comm::ProcessGroup* dp_gather = nullptr;
  comm::ProcessGroup* tensor = nullptr;  // the ranks that share each matrix; not the one that
                                         // layers use where that is another thread's
  comm::ProcessGroup* tied = nullptr;    // first and last stage, on those two
  comm::ProcessGroup* world = nullptr;   // all ranks
};

// Called by the training thread alone. Order of a step: BucketReady for every bucket of the layout,
// FinishGradients, ReduceEndOfStep, the update with GatherBucket behind each bucket; then
// WaitWeights before a chunk's next forward. All ranks of a group make the same calls in the same
// order. Results are the same to the last bit with and without overlap, at stage 0 and 1.
//
// The first error of any group sticks: later calls return at once, callers inside backward look at
// status() when an action is over.
class GradientSync {
 public:
  struct Args {
    kernels::Device* device = nullptr;
    const kernels::UpdateOps* update = nullptr;
    const kernels::VectorOps* vector = nullptr;
    // Its share says stage and replica. Its memory must outlive this: threads work on it.
    const params::ParamStore* store = nullptr;
    SyncGroups groups;
    // The word table whose gradient this rank exchanges with the other end of groups.tied.
    params::ParamId tied_table = params::ParamId::kNone;
    bool overlap_reduce = true;  // parallel.overlap.grad_reduce
    bool overlap_gather = true;  // parallel.overlap.param_gather
  };
  // CHECKs that groups and store agree on the replicas.
  explicit GradientSync(const Args& args);
  // Work under way (there is some only where a step was left early, or nobody waited for the
  // weights) is ended by aborting the data-parallel groups.
  ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Reserves the sums; call once, before plan is allocated. Bind takes them.
  void Plan(memory::MemoryPlan* plan);
  void Bind(const memory::Memory& memory);

  // From the backward of a chunk's last microbatch: all gradients of the bucket are written (on
  // `stream`). Starts its sum over the replicas and, with overlap, returns at once.
  void BucketReady(kernels::Stream& stream, int bucket);
  // All buckets of the chunk at once, for a backward that did not report them one by one.
  void ChunkReady(kernels::Stream& stream, int chunk);
  // After the last action of the step: waits for the sums, exchanges the tied table, sums partial
  // gradients over the tensor axis. Adds to out (f64 [2]) the sum of squares and the number of
  // non-finite elements that this rank answers for: over the world each element of the model counts
  // once (not: copies; replicated parameters on other tensor ranks than the first).
  Status FinishGradients(kernels::Stream& stream, const kernels::Tensor& out);
  // Sums over all ranks, in place: the end-of-step vector, and f64 [n]. Both in device memory.
  Status ReduceEndOfStep(kernels::Stream& stream, kernels::EndOfStep* vector);
  Status SumDoubles(kernels::Stream& stream, const kernels::Tensor& values);

  // After the bucket's update on `stream`: brings the other replicas' parts of its weights here.
  // Nothing to do at stage 0.
  void GatherBucket(kernels::Stream& stream, int bucket);
  // All buckets, and waits: after state was loaded and rounded (params::RoundMaster).
  Status GatherAll(kernels::Stream& stream);
  // Until then the chunk's weights must not be read.
  Status WaitWeights(kernels::Stream& stream, int chunk);
  // Of all chunks: before evaluation, checkpoints and the end of a run.
  Status WaitAllWeights(kernels::Stream& stream);

  int dp_rank() const;
  int dp_size() const;
  Status status() const;

 private:
  // An order of communication: a thread where it overlaps with computation, else the caller.
  struct Lane {
    std::unique_ptr<CommThread> thread;       // nullptr: calls run inline
    std::unique_ptr<kernels::Stream> stream;  // the thread's
  };
  using Call = std::function<Status(kernels::Stream&)>;

  static bool IsAlone(const comm::ProcessGroup* group) {
    return group == nullptr || group->size() == 1;
  }
  bool IsTied(int bucket) const;
  // Whether the bucket's gradient is final once it is summed over the replicas.
  bool IsFinalAfterReduce(int bucket) const;
  // Whether this rank's part of the bucket belongs in the norm.
  bool Counts(int bucket) const;

  // Runs `call` on the lane; the ticket to wait for, 0 if it is done.
  CommThread::Ticket RunOn(Lane* lane, kernels::Stream& caller, Call call);
  // Waits for the lane.
  void Await(Lane* lane, CommThread::Ticket ticket);
  // Runs a collective of the calling thread unless an error came before.
  Status RunHere(const std::function<Status()>& collective);
  // Keeps the first error.
  void Keep(const Status& status);

  // The steps of the above, for one bucket.
  Status Reduce(kernels::Stream& stream, int bucket);
  Status SumOverTensor(kernels::Stream& stream, int bucket);
  Status ExchangeTied(kernels::Stream& stream, int bucket);
  void SquareSum(kernels::Stream& stream, int bucket);
  Status Gather(kernels::Stream& stream, int bucket);
  void AwaitGather(int bucket);

  const Args args_;
  const params::ParamStore* const store_;
  memory::Block sums_block_;
  kernels::Tensor
      sums_;  // f64 [buckets, 2]: square sum and non-finite count of each, in flat order
  std::vector<CommThread::Ticket> reduce_tickets_, gather_tickets_;  // by bucket; 0: done
  std::vector<bool> ready_;  // by bucket: reported in this step
  int num_ready_ = 0;
  Status status_;
  Lane reduce_lane_, gather_lane_;  // last: their threads use the members above
};

}  // namespace mt::parallel
