// Each call is at most one collective; shapes are CHECKed against the group's size.
#include "worker/parallel/tensor_parallel.h"

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

Tensor TensorParallel::Gather(Stream& stream, const Tensor& part, const Tensor& whole) {
  if (!sequence_parallel_) return part;
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  Run([&] {
    return group_->AllGather(stream, part.data, whole.data, part.NumElements(), part.dtype);
  });
  return whole;
}

Tensor TensorParallel::Reduce(Stream& stream, const Tensor& whole, const Tensor& part) {
  if (size() == 1) return whole;
  if (!sequence_parallel_) {
    Run([&] {
      return group_->AllReduce(stream, whole.data, whole.data, whole.NumElements(), whole.dtype,
                               comm::ReduceOp::kSum);
    });
    return whole;
  }
  CHECK_EQ(whole.NumElements(), part.NumElements() * size());
  Run([&] {
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
  Run([&] { return group_->AllGather(stream, in.data, out.data, in.NumElements(), in.dtype); });
}

}  // namespace mt::parallel
