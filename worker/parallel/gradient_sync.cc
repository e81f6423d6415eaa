// Each bucket's collective and square sum run as one task of a lane. Square sums are stored per
// bucket and added in flat order at the end, so that the norm's bits do not depend on which thread
// computed what when.
#include "worker/parallel/gradient_sync.h"

#include <algorithm>
#include <utility>

namespace mt::parallel {

using kernels::Stream;
using kernels::Tensor;
using params::ParamStore;
using params::Slice;

namespace {

// Where calls of the lane run; nullptr: on the caller's stream.
SpanKind KindOn(const Lane* lane) {
  return lane == nullptr ? SpanKind::kInline : SpanKind::kBeside;
}

}  // namespace

GradientSync::GradientSync(Args args)
    : args_(std::move(args)),
      store_(args_.store),
      reduce_tickets_(static_cast<size_t>(store_->layout().num_buckets()), 0),
      gather_tickets_(static_cast<size_t>(store_->layout().num_buckets()), 0),
      ready_(static_cast<size_t>(store_->layout().num_buckets()), false) {
  CheckGroups();
  for (int64_t i = 0; i < store_->registry().size(); ++i) {
    const auto id = static_cast<params::ParamId>(i);
    const params::ParamSpec& param = store_->registry()[id];
    std::vector<int>& buckets = of_layer_[{param.chunk, param.layer}];
    const int bucket = store_->layout().BucketOf(id);
    if (std::ranges::find(buckets, bucket) == buckets.end()) buckets.push_back(bucket);
  }
  const int window = store_->layout().num_buckets();  // a step awaits all of its calls
  if (args_.overlap_reduce && has_replicas()) {
    reduce_lane_ = Lane::Create(args_.device, "mt-dp-reduce", window);
  }
  if (args_.overlap_gather && std::ranges::any_of(args_.routes, &BucketRoute::gather)) {
    gather_lane_ = Lane::Create(args_.device, "mt-dp-gather", window);
  }
}

void GradientSync::CheckGroups() const {
  const SyncGroups& groups = args_.groups;
  const int64_t replicas = has_replicas() ? groups.dp_reduce->size() : 1;
  CHECK_EQ(replicas, store_->layout().dp_size());
  if (has_replicas()) {
    CHECK_EQ(groups.dp_reduce->rank(), store_->share().dp_rank);
    CHECK(groups.dp_gather != nullptr && groups.dp_gather->size() == replicas);
  }
  CHECK_EQ(args_.routes.size(), static_cast<size_t>(store_->layout().num_buckets()));
  for (const BucketRoute& route : args_.routes) {
    CHECK_EQ(route.reduce != Reduction::kNone, has_replicas());
    CHECK(!route.tied || groups.tied != nullptr);
    CHECK(!route.tensor_sum || groups.tensor != nullptr);
  }
}

GradientSync::~GradientSync() {
  const auto end = [](const Lane* lane, comm::ProcessGroup* group) {
    if (lane != nullptr && lane->busy()) group->Abort("the rank stops within a step");
  };
  end(reduce_lane_.get(), args_.groups.dp_reduce);
  end(gather_lane_.get(), args_.groups.dp_gather);
}

void GradientSync::Plan(memory::MemoryPlan* plan) {
  sums_block_ = plan->Reserve(memory::Kind::kWorkspace,
                              store_->layout().num_buckets() * 2 * int64_t{sizeof(double)});
  const int64_t element = kernels::SizeOf(store_->accumulator_dtype());
  int64_t largest = 0;
  int64_t tied = 0;
  for (int b = 0; b < store_->layout().num_buckets(); ++b) {
    largest = std::max(largest, store_->layout().bucket(b).count);
    if (route(b).tied) tied = store_->UpdatedSlice(b).count;
  }
  const auto reserve = [&](const comm::ProcessGroup& group, int64_t count) {
    return plan->Reserve(memory::Kind::kComm, group.ScratchBytes(count * element));
  };
  if (has_replicas()) scratch_block_ = reserve(*args_.groups.dp_reduce, largest);
  if (tied > 0) tied_scratch_block_ = reserve(*args_.groups.tied, tied);
}

void GradientSync::Bind(const memory::Memory& memory) {
  sums_ = {memory.Data(sums_block_), kernels::DType::kF64, {store_->layout().num_buckets(), 2}};
}

Status GradientSync::Share(const memory::Memory& memory) {
  using Piece = comm::ProcessGroup::SharedMemory::Piece;
  const SyncGroups& groups = args_.groups;
  const auto piece = [](const Tensor& tensor) {
    return Piece{.data = tensor.data, .bytes = tensor.Bytes()};
  };
  const auto scratch = [&](const memory::Block& block) {
    return Piece{.data = memory.Data(block), .bytes = block.bytes};
  };
  if (has_replicas()) {
    RETURN_IF_ERROR(groups.dp_reduce->Share(
        {.operands = {piece(store_->grads())}, .scratch = scratch(scratch_block_)}));
    if (groups.dp_gather != groups.dp_reduce) {
      RETURN_IF_ERROR(
          groups.dp_gather->Share({.operands = {piece(store_->weights())}, .scratch = {}}));
    }
  }
  for (int b = 0; b < store_->layout().num_buckets(); ++b) {
    if (!route(b).tied) continue;
    // The bucket alone: the two ends have different layers, and so different places for it.
    RETURN_IF_ERROR(groups.tied->Share(
        {.operands = {piece(store_->BucketGrads(b))}, .scratch = scratch(tied_scratch_block_)}));
  }
  return OkStatus();
}

// Lanes.

Lane::Ticket GradientSync::RunOn(Lane* lane, Stream& caller, Lane::Call call) {
  if (lane != nullptr) return lane->Post(caller, std::move(call));
  Keep(call(caller));
  return 0;
}

void GradientSync::Await(Stream& stream, Lane* lane, Lane::Ticket ticket, CommUse use) {
  if (lane == nullptr || ticket == 0) return;
  Keep(TimeWait(args_.spans, stream, use, [&] { return lane->Await(stream, ticket); }));
}

Status GradientSync::TimeOn(const Lane* lane, Stream& stream, CommUse use, const PickedCall& picked,
                            const std::function<Status()>& call) {
  return TimePicked(picked, stream, use, KindOn(lane), call);
}

Status GradientSync::RunHere(Stream& stream, CommUse use,
                             const std::function<Status()>& collective) {
  if (!status_.ok()) return status_;
  Keep(TimeCall(args_.spans, stream, use, SpanKind::kInline, collective));
  return status_;
}

void GradientSync::Keep(const Status& status) {
  if (status_.ok()) status_ = status;
}

Status GradientSync::status() const {
  if (!status_.ok()) return status_;
  if (reduce_lane_ != nullptr) RETURN_IF_ERROR(reduce_lane_->status());
  if (gather_lane_ != nullptr) RETURN_IF_ERROR(gather_lane_->status());
  return OkStatus();
}

// Gradients.

void GradientSync::BucketReady(Stream& stream, int bucket) {
  if (!status_.ok()) return;
  CHECK(!ready_[static_cast<size_t>(bucket)]) << "bucket " << bucket << " is reported twice";
  ready_[static_cast<size_t>(bucket)] = true;
  if (num_ready_++ == 0) (void)WaitAllWeights(stream);  // both lanes may use the same group
  // Where the lane is a thread, the call may run in the next step.
  const PickedCall picked = route(bucket).reduce == Reduction::kNone
                                ? PickedCall{}
                                : PickForLater(args_.spans, CommUse::kReduce);
  reduce_tickets_[static_cast<size_t>(bucket)] =
      RunOn(reduce_lane_.get(), stream, [this, bucket, picked](Stream& lane) -> Status {
        RETURN_IF_ERROR(Reduce(lane, bucket, picked));
        if (route(bucket).final_after_reduce()) SquareSum(lane, bucket);
        return OkStatus();
      });
}

void GradientSync::ChunkReady(Stream& stream, int chunk) {
  const params::FlatLayout& layout = store_->layout();
  for (int b = 0; b < layout.num_buckets(); ++b) {
    if (layout.bucket(b).chunk == chunk) BucketReady(stream, b);
  }
}

Status GradientSync::Reduce(Stream& stream, int bucket, const PickedCall& picked) {
  comm::ProcessGroup* const group = args_.groups.dp_reduce;
  const Tensor whole = store_->BucketGrads(bucket);
  const Tensor own = ParamStore::Cut(store_->grads(), store_->OwnSlice(bucket));
  if (route(bucket).reduce == Reduction::kNone) return OkStatus();
  return TimeOn(reduce_lane_.get(), stream, CommUse::kReduce, picked, [&] {
    if (route(bucket).reduce == Reduction::kReduceScatter) {
      return group->ReduceScatter(stream, whole.data, own.data, own.NumElements(), own.dtype,
                                  comm::ReduceOp::kSum);
    }
    return group->AllReduce(stream, whole.data, whole.data, whole.NumElements(), whole.dtype,
                            comm::ReduceOp::kSum);
  });
}

Status GradientSync::FinishGradients(Stream& stream, const Tensor& out) {
  const int num_buckets = store_->layout().num_buckets();
  for (int b = 0; b < num_buckets; ++b) {
    Await(stream, reduce_lane_.get(), reduce_tickets_[static_cast<size_t>(b)], CommUse::kReduce);
  }
  if (!status_.ok()) return status_;
  CHECK_EQ(num_ready_, num_buckets) << "a bucket was not reported";
  num_ready_ = 0;
  ready_.assign(ready_.size(), false);
  // All tied exchanges come first, then all tensor sums, so that the members of each group agree on
  // the order.
  for (int b = 0; b < num_buckets; ++b) {
    if (route(b).tied) RETURN_IF_ERROR(ExchangeTied(stream, b));
  }
  for (int b = 0; b < num_buckets; ++b) {
    if (route(b).tensor_sum) RETURN_IF_ERROR(SumOverTensor(stream, b));
  }
  for (int b = 0; b < num_buckets; ++b) {
    if (!route(b).final_after_reduce()) SquareSum(stream, b);
  }
  args_.vector->RowSum(stream, sums_, kernels::GradMode::kAdd, out);
  return OkStatus();
}

Status GradientSync::ExchangeTied(Stream& stream, int bucket) {
  // A sum over two ranks is one addition, which commutes, so both ends obtain the same bits,
  // whichever part of the table the replica has.
  const Tensor part = ParamStore::Cut(store_->grads(), store_->UpdatedSlice(bucket));
  return RunHere(stream, CommUse::kTable, [&] {
    return args_.groups.tied->AllReduce(stream, part.data, part.data, part.NumElements(),
                                        part.dtype, comm::ReduceOp::kSum);
  });
}

Status GradientSync::SumOverTensor(Stream& stream, int bucket) {
  comm::ProcessGroup* const group = args_.groups.tensor;
  // The order of a sum depends on the element's position in its call, so a replica that needs all
  // of it sums slice by slice, as those do that need one.
  const bool scattered = route(bucket).reduce == Reduction::kReduceScatter;
  for (int64_t r = 0; r < (scattered ? 1 : store_->layout().dp_size()); ++r) {
    const Slice slice = scattered ? store_->OwnSlice(bucket) : store_->layout().OwnSlice(bucket, r);
    const Tensor part = ParamStore::Cut(store_->grads(), slice);
    RETURN_IF_ERROR(RunHere(stream, CommUse::kPartial, [&] {
      return group->AllReduce(stream, part.data, part.data, part.NumElements(), part.dtype,
                              comm::ReduceOp::kSum);
    }));
  }
  return OkStatus();
}

void GradientSync::SquareSum(Stream& stream, int bucket) {
  const Tensor pair = sums_.Rows(bucket, 1).Reshaped({2});
  args_.device->Zero(stream, pair.data, pair.Bytes());
  if (!route(bucket).counted) return;
  const Tensor own = ParamStore::Cut(store_->grads(), store_->OwnSlice(bucket));
  args_.update->SquareSum(stream, {.gradient = own, .out = pair});
}

Status GradientSync::ReduceEndOfStep(Stream& stream, const Tensor& vector) {
  return SumDoubles(stream, vector);
}

Status GradientSync::SumDoubles(Stream& stream, const Tensor& values) {
  comm::ProcessGroup* const group = args_.groups.world;
  if (IsAlone(group)) return status_;
  double* const data = values.Data<double>();
  return RunHere(stream, CommUse::kWorld, [&] {
    return group->AllReduce(stream, data, data, values.NumElements(), kernels::DType::kF64,
                            comm::ReduceOp::kSum);
  });
}

// Weights.

void GradientSync::GatherBucket(Stream& stream, int bucket) {
  if (!route(bucket).gather || !status_.ok()) return;
  const PickedCall picked = PickForLater(args_.spans, CommUse::kGather);
  gather_tickets_[static_cast<size_t>(bucket)] =
      RunOn(gather_lane_.get(), stream,
            [this, bucket, picked](Stream& lane) { return Gather(lane, bucket, picked); });
}

Status GradientSync::Gather(Stream& stream, int bucket, const PickedCall& picked) {
  const Tensor own = ParamStore::Cut(store_->weights(), store_->OwnSlice(bucket));
  const Tensor whole = store_->BucketWeights(bucket);
  return TimeOn(gather_lane_.get(), stream, CommUse::kGather, picked, [&] {
    return args_.groups.dp_gather->AllGather(stream, own.data, whole.data, own.NumElements(),
                                             own.dtype);
  });
}

void GradientSync::AwaitGather(Stream& stream, int bucket) {
  Await(stream, gather_lane_.get(), std::exchange(gather_tickets_[static_cast<size_t>(bucket)], 0),
        CommUse::kGather);
}

Status GradientSync::GatherAll(Stream& stream) {
  for (const int bucket : store_->layout().ForwardOrder()) GatherBucket(stream, bucket);
  return WaitAllWeights(stream);
}

Status GradientSync::WaitWeights(Stream& stream, int chunk) {
  const params::FlatLayout& layout = store_->layout();
  for (int b = 0; b < layout.num_buckets(); ++b) {
    if (layout.bucket(b).chunk == chunk) AwaitGather(stream, b);
  }
  return status_;
}

Status GradientSync::WaitLayer(Stream& stream, int chunk, int layer) {
  const auto found = of_layer_.find({chunk, layer});
  if (found != of_layer_.end()) {
    for (const int bucket : found->second) AwaitGather(stream, bucket);
  }
  return status_;
}

Status GradientSync::WaitAllWeights(Stream& stream) {
  for (int b = 0; b < store_->layout().num_buckets(); ++b) AwaitGather(stream, b);
  return status_;
}

}  // namespace mt::parallel
