// One kernel launch per bucket, followed by the bucket's all-gather under ZeRO-1. The rules
// themselves are kernels/ops/update.h's.
#include "worker/optim/optimizer.h"

namespace mt::optim {

using params::ParamStore;

Optimizer::Optimizer(const kernels::UpdateOps* ops, const ParamStore* store,
                     const OptimizerConfig& config)
    : ops_(ops), store_(store), config_(config) {
  CHECK_EQ(store->share().moments, config.moments());
}

void Optimizer::Update(kernels::Stream& stream, const kernels::StepScalars* scalars,
                       parallel::GradientSync* sync) const {
  CHECK(sync != nullptr || !store_->state_is_cut());
  for (const int bucket : store_->layout().ForwardOrder()) {
    UpdateBucket(stream, bucket, scalars);
    if (sync != nullptr) sync->GatherBucket(stream, bucket);
  }
}

void Optimizer::UpdateBucket(kernels::Stream& stream, int bucket,
                             const kernels::StepScalars* scalars) const {
  const ParamStore::State state = store_->StateOf(bucket);
  const bool decay = store_->layout().bucket(bucket).decay;
  switch (config_.kind) {
    case OptimizerKind::kAdamW:
      ops_->AdamW(stream, {.gradient = state.gradient,
                           .master = state.master,
                           .m = state.m,
                           .v = state.v,
                           .model_copy = state.model_copy,
                           .decay = decay,
                           .beta1 = config_.beta1,
                           .beta2 = config_.beta2,
                           .eps = config_.eps,
                           .scalars = scalars});
      break;
    case OptimizerKind::kSgd:
      ops_->Sgd(stream, {.gradient = state.gradient,
                         .master = state.master,
                         .momentum = state.m,
                         .model_copy = state.model_copy,
                         .decay = decay,
                         .mu = config_.momentum,
                         .scalars = scalars});
      break;
  }
}

}  // namespace mt::optim
