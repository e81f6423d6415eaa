// Each call is at most one collective; shapes are CHECKed against the group's size.
#include "worker/parallel/tensor_parallel.h"

#include <utility>

#include "common/base/check.h"

namespace mt::parallel {

using kernels::Stream;
using kernels::Tensor;

template <class Call>
void TensorParallel::Run(const Call& call) {
  if (!status_.ok()) return;
  if (on_collective_) on_collective_(true);
  status_ = call();
  if (on_collective_) on_collective_(false);
}

template <class Call>
void TensorParallel::RunInline(Stream& stream, const Call& call) {
  CHECK_EQ(num_pending_, 0) << "the group runs its calls in one order";
  Run([&] { return TimeCall(spans_, stream, CommUse::kLayer, SpanKind::kInline, call); });
}

TensorParallel::Pending TensorParallel::Start(Stream& stream, const Tensor& result,
                                              Lane::Call call) {
  if (!status_.ok()) return {.result = result};
  if (lane_ == nullptr) {
    RunInline(stream, [&] { return call(stream); });
    return {.result = result};
  }
  CHECK_LT(num_pending_, kMostPending) << "collectives that were begun are not finished";
  ++num_pending_;
  CommSpans* const spans = PickCall(spans_, CommUse::kLayer);
  if (spans != nullptr) {
    call = [spans, plain = std::move(call)](Stream& lane) {
      return TimeSpan(spans, lane, CommUse::kLayer, SpanKind::kBeside, [&] { return plain(lane); });
    };
  }
  return {.result = result, .ticket = lane_->Post(stream, std::move(call)), .spans = spans};
}

// A wait without its call would say nothing, so both are timed or neither is.
Tensor TensorParallel::Finish(Stream& stream, const Pending& pending) {
  if (pending.ticket == 0) return pending.result;
  CHECK_GT(num_pending_, 0) << "a collective is finished twice";
  --num_pending_;
  Run([&] {
    return TimeSpan(pending.spans, stream, CommUse::kLayer, SpanKind::kWait,
                    [&] { return lane_->Await(stream, pending.ticket); });
  });
  return pending.result;
}

TensorParallel::Pending TensorParallel::StartGather(Stream& stream, const Tensor& part,
                                                    const Tensor& whole) {
  if (!sequence_parallel_) return {.result = part};
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  return Start(stream, whole, [group = group_, part, whole](Stream& lane) {
    return group->AllGather(lane, part.data, whole.data, part.NumElements(), part.dtype);
  });
}

TensorParallel::Pending TensorParallel::StartReduce(Stream& stream, const Tensor& whole,
                                                    const Tensor& part) {
  if (size() == 1) return {.result = whole};
  CHECK(!sequence_parallel_ || whole.NumElements() == part.NumElements() * size());
  const bool scatters = sequence_parallel_;
  return Start(stream, scatters ? part : whole,
               [group = group_, scatters, whole, part](Stream& lane) {
                 if (scatters) {
                   return group->ReduceScatter(lane, whole.data, part.data, part.NumElements(),
                                               part.dtype, comm::ReduceOp::kSum);
                 }
                 return group->AllReduce(lane, whole.data, whole.data, whole.NumElements(),
                                         whole.dtype, comm::ReduceOp::kSum);
               });
}

Tensor TensorParallel::Gather(Stream& stream, const Tensor& part, const Tensor& whole) {
  if (!sequence_parallel_) return part;
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  RunInline(stream, [&] {
    return group_->AllGather(stream, part.data, whole.data, part.NumElements(), part.dtype);
  });
  return whole;
}

Tensor TensorParallel::Reduce(Stream& stream, const Tensor& whole, const Tensor& part) {
  if (size() == 1) return whole;
  if (!sequence_parallel_) {
    RunInline(stream, [&] {
      return group_->AllReduce(stream, whole.data, whole.data, whole.NumElements(), whole.dtype,
                               comm::ReduceOp::kSum);
    });
    return whole;
  }
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  RunInline(stream, [&] {
    return group_->ReduceScatter(stream, whole.data, part.data, part.NumElements(), part.dtype,
                                 comm::ReduceOp::kSum);
  });
  return part;
}

void TensorParallel::AllGather(Stream& stream, const Tensor& in, const Tensor& out) {
  CHECK_EQ(out.NumElements(), in.NumElements() * size());
  if (size() == 1) {
    CHECK(in.data == out.data) << "one rank gathers in place";
    return;
  }
  RunInline(stream, [&] {
    return group_->AllGather(stream, in.data, out.data, in.NumElements(), in.dtype);
  });
}

}  // namespace mt::parallel
