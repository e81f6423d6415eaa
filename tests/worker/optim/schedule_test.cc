// Learning rates of a job against Megatron-LM's values (maximum 6e-4, minimum 6e-5, 100 samples of
// warm-up, decay over 1000), and how the scalar block advances: warm-up from 0, clipping, skips.
#include "worker/optim/schedule.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"

namespace mt::optim {
namespace {

using kernels::AdvanceStepScalars;
using kernels::EndOfStep;
using kernels::LearningRate;
using kernels::StepConstants;
using kernels::StepScalars;

megatrain::v1::JobSpec Job(const std::string& decay) {
  const std::string text = R"(
name: schedule
model: {layers: 1, hidden_size: 8, heads: 1, seq_length: 4, vocab_size: 16}
data: {mock: true}
training: {train_samples: 1000, micro_batch_size: 10, global_batch_size: 10}
optimizer: {lr: 6e-4, min_lr: 6e-5, warmup: 100, weight_decay: 0.1, clip_grad: 1.0, decay: )" +
                           decay + "}\n";
  megatrain::v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(text, {}, {}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

StepConstants Constants(const std::string& decay) { return ConstantsFromJob(Job(decay)); }

TEST(ScheduleTest, ConstantsOfAJob) {
  const StepConstants c = Constants("cosine");
  EXPECT_EQ(c.warmup_samples, 100);
  EXPECT_EQ(c.decay_samples, 1000);
  EXPECT_EQ(c.batch_samples, 10);
  EXPECT_EQ(c.nominal_tokens, 40);
  EXPECT_EQ(c.max_lr, 6e-4);
  EXPECT_EQ(c.min_lr, 6e-5);
  EXPECT_EQ(c.weight_decay, 0.1);
  EXPECT_EQ(c.clip_grad, 1.0);
  EXPECT_EQ(c.beta1, 0.9);
  EXPECT_EQ(c.beta2, 0.999);
}

TEST(ScheduleTest, ConstantsOfEverySchedule) {
  using Spec = megatrain::v1::Optimizer;
  megatrain::v1::JobSpec job = Job("cosine");
  Spec* optimizer = job.mutable_optimizer();
  optimizer->set_decay(Spec::DECAY_INVERSE_SQRT);
  optimizer->set_warmup_init(1e-5);
  EXPECT_EQ(ConstantsFromJob(job).decay, kernels::DecayKind::kInverseSqrt);
  EXPECT_EQ(ConstantsFromJob(job).warmup_init, 1e-5);
  EXPECT_EQ(ConstantsFromJob(job).weight_decay_end, 0.1) << "unset: as at the start";
  optimizer->set_decay(Spec::DECAY_WSD);
  optimizer->mutable_wsd()->set_over("20%");
  optimizer->set_weight_decay_end(0.3);
  optimizer->set_weight_decay_style(Spec::WEIGHT_DECAY_STYLE_COSINE);
  StepConstants c = ConstantsFromJob(job);
  EXPECT_EQ(c.wsd_samples, 200);
  EXPECT_EQ(c.wsd_style, kernels::WsdStyle::kExponential);
  EXPECT_NEAR(LearningRate(c, 900), 2.83675324e-4, 5e-13);
  EXPECT_EQ(c.weight_decay_end, 0.3);
  EXPECT_EQ(c.weight_decay_kind, kernels::WeightDecayKind::kCosine);
  EXPECT_EQ(c.weight_decay_samples, 1000);
  optimizer->mutable_wsd()->set_style(Spec::Wsd::STYLE_MINUS_SQRT);
  EXPECT_NEAR(LearningRate(ConstantsFromJob(job), 900), 2.18162338e-4, 5e-13);
}

TEST(ScheduleTest, ARampKeepsTheConstantOfItsLastSize) {
  megatrain::v1::JobSpec job = Job("linear");
  job.mutable_training()->set_global_batch_size(40);
  job.mutable_training()->set_batch_ramp("10,10,300");
  StepConstants c = ConstantsFromJob(job);
  EXPECT_EQ(c.nominal_tokens, 40 * 4);
  EXPECT_EQ(c.batch_samples, 40);
  // A step of the first size: gradients carry 1 / 160 per token, of which 40 counted; the counter
  // moves by the step's own samples.
  c.batch_samples = 10;
  StepScalars s;
  AdvanceStepScalars(&s, {.sum_squares = 0.0025, .loss = 80, .tokens = 40}, c);
  EXPECT_DOUBLE_EQ(s.grad_norm, 0.2);
  EXPECT_DOUBLE_EQ(s.factor, 4.0);
  EXPECT_EQ(s.schedule_samples, 10);
}

TEST(ScheduleTest, OptimizerOfAJob) {
  using Spec = megatrain::v1::Optimizer;
  megatrain::v1::JobSpec job = Job("cosine");
  Spec* optimizer = job.mutable_optimizer();
  optimizer->set_beta2(0.95);
  EXPECT_EQ(OptimizerFromJob(job).kind, OptimizerKind::kAdamW);
  EXPECT_EQ(OptimizerFromJob(job).beta1, 0.9);
  EXPECT_EQ(OptimizerFromJob(job).beta2, 0.95);
  EXPECT_EQ(OptimizerFromJob(job).eps, 1e-8);
  EXPECT_EQ(OptimizerFromJob(job).moments(), 2);
  optimizer->set_type(Spec::TYPE_SGD);
  EXPECT_EQ(OptimizerFromJob(job).kind, OptimizerKind::kSgd);
  EXPECT_EQ(OptimizerFromJob(job).momentum, 0.9) << "the field's default";
  EXPECT_EQ(OptimizerFromJob(job).moments(), 1);
  optimizer->set_momentum(0);
  EXPECT_EQ(OptimizerFromJob(job).moments(), 0);
}

TEST(ScheduleTest, LossScaleOfEachPrecision) {
  using Training = megatrain::v1::Training;
  megatrain::v1::JobSpec job = Job("cosine");
  EXPECT_EQ(LossScaleFromJob(job).kind, kernels::LossScaleKind::kStatic);
  EXPECT_EQ(LossScaleFromJob(job).initial, 1);
  job.mutable_training()->set_precision(Training::PRECISION_FP16);
  const kernels::LossScaleConstants dynamic = LossScaleFromJob(job);
  EXPECT_EQ(dynamic.kind, kernels::LossScaleKind::kDynamic);
  EXPECT_EQ(dynamic.initial, 4294967296.0);
  EXPECT_EQ(dynamic.min, 1);
  EXPECT_EQ(dynamic.window, 1000);
  EXPECT_EQ(dynamic.hysteresis, 2);
  Training::LossScale* scale = job.mutable_training()->mutable_loss_scale();
  scale->set_mode(Training::LossScale::MODE_STATIC);
  scale->set_value(512);
  EXPECT_EQ(LossScaleFromJob(job).kind, kernels::LossScaleKind::kStatic);
  EXPECT_EQ(ConstantsFromJob(job).loss_scale.initial, 512);
}

TEST(ScheduleTest, MegatronGoldens) {
  const StepConstants cosine = Constants("cosine");
  const StepConstants linear = Constants("linear");
  const StepConstants constant = Constants("constant");
  for (const StepConstants* c : {&cosine, &linear, &constant}) {
    EXPECT_EQ(LearningRate(*c, 0), 0);
    EXPECT_DOUBLE_EQ(LearningRate(*c, 50), 3e-4);
    EXPECT_DOUBLE_EQ(LearningRate(*c, 100), 6e-4);
  }
  EXPECT_NEAR(LearningRate(cosine, 550), 3.3e-4, 1e-12);
  EXPECT_NEAR(LearningRate(cosine, 800), 1.23168e-4, 5e-10);
  EXPECT_NEAR(LearningRate(cosine, 900), 7.62829924e-5, 5e-14);
  EXPECT_NEAR(LearningRate(linear, 900), 1.2e-4, 1e-15);
  EXPECT_EQ(LearningRate(constant, 900), 6e-4);
  EXPECT_EQ(LearningRate(constant, 1001), 6e-4);
  EXPECT_EQ(LearningRate(cosine, 1001), 6e-5);
  EXPECT_EQ(LearningRate(linear, 1001), 6e-5);
}

// A clean step over 40 tokens whose gradient has this norm.
EndOfStep CleanStep(double norm) { return {.sum_squares = norm * norm, .loss = 80, .tokens = 40}; }

TEST(ScheduleTest, FirstUpdateRunsAtZeroSamplesAndTheCounterFollows) {
  const StepConstants c = Constants("cosine");
  StepScalars s;
  for (int step = 0; step < 20; ++step) {
    AdvanceStepScalars(&s, CleanStep(0.5), c);
    EXPECT_EQ(s.lr, LearningRate(c, step * 10)) << step;
    EXPECT_EQ(s.adam_step, step + 1);
    EXPECT_EQ(s.consumed_samples, (step + 1) * 10);
  }
  EXPECT_NEAR(s.bias_correction1, 1 - std::pow(0.9, 20), 1e-15);
  EXPECT_NEAR(s.bias_correction2, 1 - std::pow(0.999, 20), 1e-15);
}

TEST(ScheduleTest, ClipsToTheNormAsMegatronDoes) {
  const StepConstants c = Constants("constant");
  StepScalars s;
  AdvanceStepScalars(&s, CleanStep(0.5), c);
  EXPECT_DOUBLE_EQ(s.grad_norm, 0.5);
  EXPECT_DOUBLE_EQ(s.factor, 1.0);
  AdvanceStepScalars(&s, CleanStep(4.0), c);
  EXPECT_DOUBLE_EQ(s.grad_norm, 4.0) << "reported before clipping";
  EXPECT_DOUBLE_EQ(s.factor, 1.0 / (4.0 + 1e-6));
  // Masked tokens: the true mean, so norm and factor are larger by nominal / actual.
  EndOfStep half = CleanStep(0.25);
  half.tokens = 20;
  AdvanceStepScalars(&s, half, c);
  EXPECT_DOUBLE_EQ(s.grad_norm, 0.5);
  EXPECT_DOUBLE_EQ(s.factor, 2.0);
}

TEST(ScheduleTest, SkippedStepConsumesSamplesButMovesNoSchedule) {
  const StepConstants c = Constants("cosine");
  StepScalars s;
  AdvanceStepScalars(&s, CleanStep(1), c);
  const StepScalars before = s;
  EndOfStep bad_gradient = CleanStep(1);
  bad_gradient.nonfinite = 1;
  EndOfStep bad_loss = CleanStep(1);
  bad_loss.loss = std::numeric_limits<double>::quiet_NaN();
  EndOfStep no_tokens;
  for (const EndOfStep* v : {&bad_gradient, &bad_loss, &no_tokens}) {
    AdvanceStepScalars(&s, *v, c);
    EXPECT_EQ(s.skip, 1);
  }
  EXPECT_EQ(s.skipped_steps, 3);
  EXPECT_EQ(s.consumed_samples, 40);
  EXPECT_EQ(s.schedule_samples, before.schedule_samples);
  EXPECT_EQ(s.adam_step, 1);
  AdvanceStepScalars(&s, CleanStep(1), c);
  EXPECT_EQ(s.skip, 0);
  EXPECT_EQ(s.lr, LearningRate(c, 10)) << "as if the skipped steps had not been";
}

}  // namespace
}  // namespace mt::optim
