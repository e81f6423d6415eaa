#include "worker/parallel/data_parallel.h"

namespace mt::parallel {

using kernels::DType;

Status DataParallel::Sum(kernels::Stream& stream, void* data, int64_t count, DType dtype) {
  if (group_ == nullptr || group_->size() == 1 || !status_.ok()) return status_;
  status_ = group_->AllReduce(stream, data, data, count, dtype, comm::ReduceOp::kSum);
  return status_;
}

Status DataParallel::ReduceBucket(kernels::Stream& stream, const params::ParamStore& store,
                                  int bucket) {
  const params::Bucket& b = store.layout().bucket(bucket);
  const kernels::Tensor gradients =
      params::ParamStore::Cut(store.grads(), {.begin = b.begin, .count = b.count});
  return Sum(stream, gradients.data, b.count, gradients.dtype);
}

Status DataParallel::SumDoubles(kernels::Stream& stream, const kernels::Tensor& values) {
  return Sum(stream, values.Data<double>(), values.NumElements(), DType::kF64);
}

Status DataParallel::ReduceEndOfStep(kernels::Stream& stream, kernels::EndOfStep* vector) {
  return Sum(stream, vector, sizeof(kernels::EndOfStep) / sizeof(double), DType::kF64);
}

}  // namespace mt::parallel
