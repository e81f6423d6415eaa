#include "worker/optim/optimizer.h"

#include <ranges>

namespace mt::optim {

using params::ParamStore;

void Optimizer::SquareSum(kernels::Stream& stream, int bucket, int64_t dp_rank,
                          const kernels::Tensor& out) const {
  const params::Slice own = store_->layout().OwnSlice(bucket, dp_rank);
  ops_->SquareSum(stream, {.gradient = ParamStore::Cut(store_->grads(), own), .out = out});
}

void Optimizer::Update(kernels::Stream& stream, const kernels::StepScalars* scalars) const {
  // The flat order is backward's; read from its end it is forward's.
  for (const params::Bucket& bucket : store_->layout().buckets() | std::views::reverse) {
    UpdateBucket(stream, bucket, scalars);
  }
}

void Optimizer::UpdateBucket(kernels::Stream& stream, const params::Bucket& bucket,
                             const kernels::StepScalars* scalars) const {
  const params::Slice all{.begin = bucket.begin, .count = bucket.count};
  kernels::AdamWArgs args;
  args.gradient = ParamStore::Cut(store_->grads(), all);
  args.master = ParamStore::Cut(store_->master(), all);
  args.m = ParamStore::Cut(store_->first_moment(), all);
  args.v = ParamStore::Cut(store_->second_moment(), all);
  if (store_->has_model_copy()) args.model_copy = ParamStore::Cut(store_->weights(), all);
  args.decay = bucket.decay;
  args.beta1 = config_.beta1;
  args.beta2 = config_.beta2;
  args.eps = config_.eps;
  args.scalars = scalars;
  ops_->AdamW(stream, args);
}

}  // namespace mt::optim
