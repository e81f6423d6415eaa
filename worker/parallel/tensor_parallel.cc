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
  Run([&] { return TimeCall(spans_, stream, CommUse::kLayer, SpanKind::kInline, call); });
}

TensorParallel::Begun TensorParallel::Start(Stream& stream, Lane::Call call) {
  if (!status_.ok()) return {};
  if (lane_ == nullptr) {
    RunInline(stream, [&] { return call(stream); });
    return {};
  }
  CommSpans* const spans = PickCall(spans_, CommUse::kLayer);
  if (spans != nullptr) {
    call = [spans, plain = std::move(call)](Stream& lane) {
      return TimeSpan(spans, lane, CommUse::kLayer, SpanKind::kBeside, [&] { return plain(lane); });
    };
  }
  return {.ticket = lane_->Post(stream, std::move(call)), .spans = spans};
}

// A wait without its call would say nothing.
void TensorParallel::Finish(Stream& stream, Begun* begun) {
  const Begun started = std::exchange(*begun, {});
  if (started.ticket == 0) return;
  Run([&] {
    return TimeSpan(started.spans, stream, CommUse::kLayer, SpanKind::kWait,
                    [&] { return lane_->Await(stream, started.ticket); });
  });
}

Tensor TensorParallel::StartGather(Stream& stream, const Tensor& part, const Tensor& whole) {
  if (!sequence_parallel_) return part;
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  CHECK_EQ(gather_.ticket, 0) << "a gather is not finished";
  gather_ = Start(stream, [group = group_, part, whole](Stream& lane) {
    return group->AllGather(lane, part.data, whole.data, part.NumElements(), part.dtype);
  });
  return whole;
}

void TensorParallel::FinishGather(Stream& stream) { Finish(stream, &gather_); }

Tensor TensorParallel::StartReduce(Stream& stream, const Tensor& whole, const Tensor& part) {
  if (size() == 1) return whole;
  CHECK_EQ(reduce_.ticket, 0) << "a reduction is not finished";
  CHECK(!sequence_parallel_ || whole.NumElements() == part.NumElements() * size());
  const bool scatters = sequence_parallel_;
  reduce_ = Start(stream, [group = group_, scatters, whole, part](Stream& lane) {
    if (scatters) {
      return group->ReduceScatter(lane, whole.data, part.data, part.NumElements(), part.dtype,
                                  comm::ReduceOp::kSum);
    }
    return group->AllReduce(lane, whole.data, whole.data, whole.NumElements(), whole.dtype,
                            comm::ReduceOp::kSum);
  });
  return scatters ? part : whole;
}

void TensorParallel::FinishReduce(Stream& stream) { Finish(stream, &reduce_); }

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
