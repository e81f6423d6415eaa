// Each call is at most one collective; shapes are CHECKed against the group's size.
#include "worker/parallel/tensor_parallel.h"

#include <utility>

#include "common/base/check.h"
#include "worker/comm/reduce.h"

namespace mt::parallel {

using comm::CommOp;
using kernels::Partials;
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

void TensorParallel::Start(Stream& stream, Lane::Call call, Pending* pending) {
  if (!status_.ok()) return;
  if (lane_ == nullptr) return RunInline(stream, [&] { return call(stream); });
  CHECK_LT(num_pending_, kMostPending) << "collectives that were begun are not finished";
  ++num_pending_;
  CommSpans* const spans = PickCall(spans_, CommUse::kLayer, /*num_spans=*/2);
  if (spans != nullptr) {
    call = [spans, plain = std::move(call)](Stream& lane) {
      return TimeSpan(spans, lane, CommUse::kLayer, SpanKind::kBeside, [&] { return plain(lane); });
    };
  }
  pending->spans = spans;
  pending->ticket = lane_->Post(stream, std::move(call));
}

// A wait without its call would say nothing, so both are timed or neither is.
void TensorParallel::Await(Stream& stream, const Pending& pending) {
  if (pending.ticket == 0) return;
  CHECK_GT(num_pending_, 0) << "a collective is finished twice";
  --num_pending_;
  Run([&] {
    return TimeSpan(pending.spans, stream, CommUse::kLayer, SpanKind::kWait,
                    [&] { return lane_->Await(stream, pending.ticket); });
  });
}

Tensor TensorParallel::Finish(Stream& stream, const Pending& pending) {
  Await(stream, pending);
  return pending.result;
}

Partials TensorParallel::FinishSum(Stream& stream, const Pending& pending) {
  Await(stream, pending);
  return pending.sum;
}

TensorParallel::Pending TensorParallel::StartGather(Stream& stream, const Tensor& part,
                                                    const Tensor& whole) {
  if (!sequence_parallel_) return {.result = part};
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  Pending pending{.result = whole};
  Start(
      stream,
      [group = routes_.Of(CommOp::kAllGather, whole.Bytes()), part, whole](Stream& lane) {
        return group->AllGather(lane, part.data, whole.data, part.NumElements(), part.dtype);
      },
      &pending);
  return pending;
}

TensorParallel::Pending TensorParallel::StartReduce(Stream& stream, const Tensor& whole,
                                                    const Tensor& part) {
  if (size() == 1) return {.sum = Partials(whole)};
  Pending pending;
  Lane::Call call = SumCall(whole, part, &pending.sum);
  Start(stream, std::move(call), &pending);
  return pending;
}

Lane::Call TensorParallel::SumCall(const Tensor& whole, const Tensor& part, Partials* sum) const {
  if (!sequence_parallel_) {
    *sum = Partials(whole);
    return [group = routes_.Of(CommOp::kAllReduce, whole.Bytes()), whole](Stream& on) {
      return group->AllReduce(on, whole.data, whole.data, whole.NumElements(), whole.dtype,
                              comm::ReduceOp::kSum);
    };
  }
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  comm::ProcessGroup* const group = routes_.Of(CommOp::kReduceScatter, whole.Bytes());
  *sum = TermsOf(whole, part);
  void* const out = sum->count > 0 ? nullptr : part.data;
  if (out != nullptr) *sum = Partials(part);
  return [group, whole, part, out](Stream& on) {
    return group->ReduceScatter(on, whole.data, out, part.NumElements(), part.dtype,
                                comm::ReduceOp::kSum);
  };
}

Partials TensorParallel::TermsOf(const Tensor& whole, const Tensor& part) const {
  Partials terms;
  const comm::ProcessGroup* const group = routes_.Of(CommOp::kReduceScatter, whole.Bytes());
  const void* const own = static_cast<char*>(whole.data) + rank() * part.Bytes();
  if (part.data != own || !TensorRoutes::LeavesTerms(group, whole.Bytes())) return terms;
  // As the sum is that would be stored.
  terms.rounded = comm::IsHalf(whole.dtype);
  for (const void* const term : group->terms()->Of(whole.data, part.NumElements(), part.dtype)) {
    // Operands that are read alone are pointers of this type, too.
    terms.tensor[static_cast<size_t>(terms.count++)] = {const_cast<void*>(term), part.dtype,
                                                        part.shape};
  }
  return terms;
}

bool TensorParallel::GathersBesideOwnRows(const Tensor& whole) const {
  return sequence_parallel_ && routes_.IsByCopies(CommOp::kAllGather, whole.Bytes());
}

bool TensorParallel::ReducesBesideOwnRows(const Tensor& whole) const {
  return sequence_parallel_ &&
         TensorRoutes::LeavesTerms(routes_.Of(CommOp::kReduceScatter, whole.Bytes()),
                                   whole.Bytes());
}

Tensor TensorParallel::Gather(Stream& stream, const Tensor& part, const Tensor& whole) {
  if (!sequence_parallel_) return part;
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  comm::ProcessGroup* const group = routes_.Of(CommOp::kAllGather, whole.Bytes());
  RunInline(stream, [&] {
    return group->AllGather(stream, part.data, whole.data, part.NumElements(), part.dtype);
  });
  return whole;
}

Partials TensorParallel::Reduce(Stream& stream, const Tensor& whole, const Tensor& part) {
  if (size() == 1) return Partials(whole);
  Partials sum;
  const Lane::Call call = SumCall(whole, part, &sum);
  RunInline(stream, [&] { return call(stream); });
  return sum;
}

void TensorParallel::AllGather(Stream& stream, const Tensor& in, const Tensor& out) {
  CHECK_EQ(out.NumElements(), in.NumElements() * size());
  if (size() == 1) {
    CHECK(in.data == out.data) << "one rank gathers in place";
    return;
  }
  comm::ProcessGroup* const group = routes_.Of(CommOp::kAllGather, out.Bytes());
  RunInline(stream, [&] {
    return group->AllGather(stream, in.data, out.data, in.NumElements(), in.dtype);
  });
}

}  // namespace mt::parallel
