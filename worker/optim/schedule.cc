// Translates the proto's enums and derived sample counts into the kernels' constants. Values are
// validated and defaults filled in before they come here.
#include "worker/optim/schedule.h"

#include "common/base/check.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::optim {
namespace {

using megatrain::v1::JobSpec;
using OptimizerSpec = megatrain::v1::Optimizer;
using Training = megatrain::v1::Training;

kernels::DecayKind DecayOf(OptimizerSpec::Decay decay) {
  switch (decay) {
    case OptimizerSpec::DECAY_CONSTANT:
      return kernels::DecayKind::kConstant;
    case OptimizerSpec::DECAY_LINEAR:
      return kernels::DecayKind::kLinear;
    case OptimizerSpec::DECAY_COSINE:
      return kernels::DecayKind::kCosine;
    case OptimizerSpec::DECAY_INVERSE_SQRT:
      return kernels::DecayKind::kInverseSqrt;
    case OptimizerSpec::DECAY_WSD:
      return kernels::DecayKind::kWsd;
    default:
      break;
  }
  CHECK(false) << "decay " << static_cast<int>(decay) << " is not resolved";
  return kernels::DecayKind::kConstant;
}

kernels::WsdStyle WsdStyleOf(OptimizerSpec::Wsd::Style style) {
  switch (style) {
    case OptimizerSpec::Wsd::STYLE_LINEAR:
      return kernels::WsdStyle::kLinear;
    case OptimizerSpec::Wsd::STYLE_COSINE:
      return kernels::WsdStyle::kCosine;
    case OptimizerSpec::Wsd::STYLE_MINUS_SQRT:
      return kernels::WsdStyle::kMinusSqrt;
    default:  // the field's default
      return kernels::WsdStyle::kExponential;
  }
}

kernels::WeightDecayKind WeightDecayOf(OptimizerSpec::WeightDecayStyle style) {
  switch (style) {
    case OptimizerSpec::WEIGHT_DECAY_STYLE_LINEAR:
      return kernels::WeightDecayKind::kLinear;
    case OptimizerSpec::WEIGHT_DECAY_STYLE_COSINE:
      return kernels::WeightDecayKind::kCosine;
    default:  // the field's default
      return kernels::WeightDecayKind::kConstant;
  }
}

}  // namespace

int OptimizerConfig::moments() const {
  if (kind == OptimizerKind::kAdamW) return 2;
  return momentum > 0 ? 1 : 0;
}

kernels::LossScaleConstants LossScaleFromJob(const JobSpec& job) {
  const Training& training = job.training();
  const Training::LossScale& scale = training.loss_scale();
  if (scale.mode() == Training::LossScale::MODE_STATIC) {
    CHECK_GT(scale.value(), 0) << "a static loss scale without its value passed validation";
    return {.initial = scale.value()};
  }
  const bool dynamic = scale.mode() == Training::LossScale::MODE_DYNAMIC ||
                       training.precision() == Training::PRECISION_FP16;
  if (!dynamic) return {};
  return {.kind = kernels::LossScaleKind::kDynamic,
          .initial = scale.initial(),
          .min = scale.min(),
          .window = scale.window(),
          .hysteresis = scale.hysteresis()};
}

kernels::StepConstants ConstantsFromJob(const JobSpec& job) {
  return ConstantsFromJob(job, spec::CourseOf(job));
}

kernels::StepConstants ConstantsFromJob(const JobSpec& job, const spec::Course& course) {
  const OptimizerSpec& optimizer = job.optimizer();
  return {.max_lr = optimizer.lr(),
          .min_lr = optimizer.min_lr(),
          .warmup_init = optimizer.warmup_init(),
          .decay = DecayOf(optimizer.decay()),
          .warmup_samples = spec::WarmupSamples(job, course),
          .decay_samples = spec::DecaySamples(job, course),
          .wsd_style = WsdStyleOf(optimizer.wsd().style()),
          .wsd_samples = spec::WsdSamples(job, course),
          .weight_decay = optimizer.weight_decay(),
          .weight_decay_end = optimizer.has_weight_decay_end() ? optimizer.weight_decay_end()
                                                               : optimizer.weight_decay(),
          .weight_decay_kind = WeightDecayOf(optimizer.weight_decay_style()),
          .weight_decay_samples = course.samples,
          .beta1 = optimizer.beta1(),
          .beta2 = optimizer.beta2(),
          .clip_grad = optimizer.clip_grad(),
          .batch_samples = job.training().global_batch_size(),
          .nominal_tokens = static_cast<double>(spec::TokensPerStep(job)),
          .loss_scale = LossScaleFromJob(job)};
}

OptimizerConfig OptimizerFromJob(const JobSpec& job) {
  const OptimizerSpec& optimizer = job.optimizer();
  const bool sgd = optimizer.type() == OptimizerSpec::TYPE_SGD;
  CHECK(sgd || optimizer.type() == OptimizerSpec::TYPE_ADAMW)
      << OptimizerSpec::Type_Name(optimizer.type()) << " passed validation unbuilt";
  return {.kind = sgd ? OptimizerKind::kSgd : OptimizerKind::kAdamW,
          .beta1 = optimizer.beta1(),
          .beta2 = optimizer.beta2(),
          .eps = optimizer.eps(),
          .momentum = optimizer.momentum()};
}

}  // namespace mt::optim
