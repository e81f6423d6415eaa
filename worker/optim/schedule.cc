#include "worker/optim/schedule.h"

#include "common/base/check.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::optim {
namespace {

using megatrain::v1::JobSpec;
using OptimizerSpec = megatrain::v1::Optimizer;

kernels::DecayKind DecayOf(OptimizerSpec::Decay decay) {
  switch (decay) {
    case OptimizerSpec::DECAY_CONSTANT:
      return kernels::DecayKind::kConstant;
    case OptimizerSpec::DECAY_LINEAR:
      return kernels::DecayKind::kLinear;
    case OptimizerSpec::DECAY_COSINE:
      return kernels::DecayKind::kCosine;
    default:
      break;
  }
  CHECK(false) << "decay " << OptimizerSpec::Decay_Name(decay) << " passed validation unbuilt";
  return kernels::DecayKind::kConstant;
}

}  // namespace

kernels::StepConstants ConstantsFromJob(const JobSpec& job) {
  const OptimizerSpec& optimizer = job.optimizer();
  CHECK(optimizer.type() == OptimizerSpec::TYPE_ADAMW)
      << OptimizerSpec::Type_Name(optimizer.type()) << " passed validation unbuilt";
  return {.max_lr = optimizer.lr(),
          .min_lr = optimizer.min_lr(),
          .decay = DecayOf(optimizer.decay()),
          .warmup_samples = spec::WarmupSamples(job),
          .decay_samples = spec::DecaySamples(job),
          .weight_decay = optimizer.weight_decay(),
          .beta1 = optimizer.beta1(),
          .beta2 = optimizer.beta2(),
          .clip_grad = optimizer.clip_grad(),
          .batch_samples = job.training().global_batch_size(),
          .nominal_tokens = static_cast<double>(spec::TokensPerStep(job))};
}

AdamConfig AdamFromJob(const JobSpec& job) {
  const OptimizerSpec& optimizer = job.optimizer();
  return {.beta1 = optimizer.beta1(), .beta2 = optimizer.beta2(), .eps = optimizer.eps()};
}

}  // namespace mt::optim
