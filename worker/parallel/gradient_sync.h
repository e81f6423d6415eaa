// The communication of gradients between backward and the update, and of weights between the update
// and the next forward. Buckets are summed over the data parallel replicas as backward completes
// them (Li et al. 2020, PyTorch DDP, section 3.2): all-reduced at ZeRO stage 0, reduce-scattered at
// stage 1 (Rajbhandari et al. 2020, section 5). Then the tied word table's gradient is exchanged
// between first and last stage, and partial gradients are summed over the tensor group. At stage 1
// the weights are all-gathered after the update. The loss is scaled by the constant 1 / (global
// batch * sequence), so plain sums yield the gradient of the global batch. Formulas, bytes and
// steps: README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/ops/update.h"
#include "kernels/ops/vector.h"
#include "worker/comm/process_group.h"
#include "worker/memory/memory.h"
#include "worker/parallel/bucket_route.h"
#include "worker/parallel/comm_spans.h"
#include "worker/parallel/lane.h"
#include "worker/params/param_store.h"

namespace mt::parallel {

// The process groups of one rank by their use (common/layout/group_axes.h); nullptr where the axes
// give it none. Not owned; they must outlive their users.
struct SyncGroups {
  comm::ProcessGroup* dp_reduce = nullptr;  // kGradients; used by the reduce lane only
  // kWeights, for the gather lane. May be the same group as dp_reduce, because a step's first
  // reduction waits for the last gather.
  comm::ProcessGroup* dp_gather = nullptr;
  comm::ProcessGroup* tensor = nullptr;  // kTensorControl
  comm::ProcessGroup* tied = nullptr;    // kTied
  comm::ProcessGroup* world = nullptr;   // kControl
};

// Called by the training thread only. The order of calls in a step is: BucketReady for every bucket
// of the layout, FinishGradients, ReduceEndOfStep, then the update with GatherBucket behind each
// bucket, and WaitWeights before a chunk's next forward. All ranks of a group make the same calls
// in the same order. Results are bit-equal with and without overlap; at stages 0 and 1, too, where
// the group's sums have one order (host memory, or two ranks: process_group.h).
//
// The first error of any group is kept and later calls return at once. Code inside backward has no
// status to return; it checks status() at the end of each action.
class GradientSync {
 public:
  struct Args {
    kernels::Device* device = nullptr;
    const kernels::UpdateOps* update = nullptr;
    const kernels::VectorOps* vector = nullptr;
    // Names ZeRO stage and replica (share()). Must outlive this, and so must its memory, on which
    // the lanes' threads work.
    const params::ParamStore* store = nullptr;
    std::vector<BucketRoute> routes;  // RoutesOf the store
    SyncGroups groups;
    bool overlap_reduce = true;  // parallel.overlap.grad_reduce
    bool overlap_gather = true;  // parallel.overlap.param_gather
    CommSpans* spans = nullptr;  // times communication; nullptr: nothing does
  };
  // CHECKs that the groups are there which the routes need, and of as many replicas as the store is
  // laid out for, in its place. Starts the lanes' threads.
  explicit GradientSync(Args args);
  // Aborts the data parallel groups if their lanes are still busy, which happens only if a step was
  // left early or nobody waited for the weights, and joins the threads.
  ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Plan reserves the buckets' square sums and what sums over ranks need; call it once before
  // the plan is allocated. Bind takes the memory.
  void Plan(memory::MemoryPlan* plan);
  void Bind(const memory::Memory& memory);
  // Tells the groups of replicas and of a tied table of the memory; once, after Bind. Collective
  // over them, and blocks until all have come.
  Status Share(const memory::Memory& memory);

  // Reports, within the backward of a chunk's last microbatch, that all gradients of the bucket are
  // written on `stream`. Starts the bucket's reduction over the replicas and, with overlap, returns
  // at once. CHECKs that a bucket is reported once per step.
  void BucketReady(kernels::Stream& stream, int bucket);
  // Reports all buckets of a chunk, for a backward that did not report them one by one.
  void ChunkReady(kernels::Stream& stream, int chunk);
  // Completes all gradients after the last action of the step: waits for the reductions, exchanges
  // the tied table, sums partial gradients over the tensor group. Adds to out (f64 [2]) the sum of
  // squares and the number of non-finite elements of this rank's part. Over the world each element
  // of the model is counted once; not counted are copies, and replicated parameters on tensor ranks
  // other than the first.
  Status FinishGradients(kernels::Stream& stream, const kernels::Tensor& out);
  // All-reduce sums over the world, in place and in device memory: of the end-of-step vector, and
  // of f64 [n].
  Status ReduceEndOfStep(kernels::Stream& stream, const kernels::Tensor& vector);
  Status SumDoubles(kernels::Stream& stream, const kernels::Tensor& values);

  // Starts the all-gather of a bucket's weights after its update on `stream`. Does nothing at stage
  // 0.
  void GatherBucket(kernels::Stream& stream, int bucket);
  // Gathers all buckets and waits; used after state was loaded and rounded (params::RoundMaster).
  Status GatherAll(kernels::Stream& stream);
  // Waits for the gathers of the chunk's weights, which must not be read before.
  Status WaitWeights(kernels::Stream& stream, int chunk);
  // The same for the weights of one layer of the chunk alone; -1: those outside of layers.
  Status WaitLayer(kernels::Stream& stream, int chunk, int layer);
  // Waits for the gathers of all chunks: before evaluation, checkpoints and the end of a run.
  Status WaitAllWeights(kernels::Stream& stream);

  // True if buckets have other replicas, for which calls may wait.
  bool has_replicas() const { return !IsAlone(args_.groups.dp_reduce); }
  const std::vector<BucketRoute>& routes() const { return args_.routes; }
  Status status() const;

 private:
  static bool IsAlone(const comm::ProcessGroup* group) {
    return group == nullptr || group->size() == 1;
  }
  const BucketRoute& route(int bucket) const { return args_.routes[static_cast<size_t>(bucket)]; }
  void CheckGroups() const;

  // Runs `call` on the lane, or on the caller's stream without one (nullptr), and returns the
  // ticket to wait for; 0 if stream order suffices.
  Lane::Ticket RunOn(Lane* lane, kernels::Stream& caller, Lane::Call call);
  // Runs a call, timed if it was picked, on the lane's stream.
  static Status TimeOn(const Lane* lane, kernels::Stream& stream, CommUse use,
                       const PickedCall& picked, const std::function<Status()>& call);
  // What `stream` is given from now on finds the ticket's call done; keeps its error.
  void Await(kernels::Stream& stream, Lane* lane, Lane::Ticket ticket, CommUse use);
  // Runs a collective on the calling thread and its stream unless an error occurred earlier.
  Status RunHere(kernels::Stream& stream, CommUse use, const std::function<Status()>& collective);
  // Stores the status if it is the first error.
  void Keep(const Status& status);

  // The steps for one bucket.
  Status Reduce(kernels::Stream& stream, int bucket, const PickedCall& picked);
  Status SumOverTensor(kernels::Stream& stream, int bucket);
  Status ExchangeTied(kernels::Stream& stream, int bucket);
  void SquareSum(kernels::Stream& stream, int bucket);
  Status Gather(kernels::Stream& stream, int bucket, const PickedCall& picked);
  void AwaitGather(kernels::Stream& stream, int bucket);

  const Args args_;
  const params::ParamStore* const store_;
  memory::Block sums_block_, scratch_block_, tied_scratch_block_;
  kernels::Tensor sums_;  // f64 [buckets, 2]: square sum and non-finite count of each bucket
  std::vector<Lane::Ticket> reduce_tickets_, gather_tickets_;  // [bucket]; 0: done
  std::map<std::pair<int, int>, std::vector<int>> of_layer_;   // buckets by chunk and layer
  std::vector<bool> ready_;                                    // [bucket] reported in this step
  int num_ready_ = 0;
  Status status_;
  // nullptr: their calls run on the caller's stream. Last: their threads use the members above.
  std::unique_ptr<Lane> reduce_lane_, gather_lane_;
};

}  // namespace mt::parallel
