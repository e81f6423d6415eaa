// The scalar block: learning rates against values printed by Megatron-LM's scheduler, clipping, and
// what a skipped step moves.
#include "kernels/ops/step_scalars.h"

#include <limits>

#include <gtest/gtest.h>

namespace mt::kernels {
namespace {

StepConstants Constants(DecayKind decay) {
  return {
      .max_lr = 6e-4, .min_lr = 6e-5, .decay = decay, .warmup_samples = 100, .decay_samples = 1000};
}

TEST(LearningRateTest, WarmupIsLinearFromZeroInEveryKind) {
  for (const DecayKind decay : {DecayKind::kConstant, DecayKind::kLinear, DecayKind::kCosine}) {
    EXPECT_EQ(LearningRate(Constants(decay), 0), 0.0);
    EXPECT_NEAR(LearningRate(Constants(decay), 50), 3e-4, 1e-18);
    EXPECT_NEAR(LearningRate(Constants(decay), 100), 6e-4, 1e-18);
  }
}

TEST(LearningRateTest, GoldenValues) {
  const StepConstants cosine = Constants(DecayKind::kCosine),
                      linear = Constants(DecayKind::kLinear);
  EXPECT_NEAR(LearningRate(cosine, 550), 3.3e-4, 1e-15);
  EXPECT_NEAR(LearningRate(cosine, 800), 1.23168e-4, 5e-10);
  EXPECT_NEAR(LearningRate(cosine, 900), 7.62829924e-5, 5e-14);
  EXPECT_NEAR(LearningRate(linear, 900), 1.2e-4, 1e-15);
  EXPECT_NEAR(LearningRate(linear, 1000), 6e-5, 1e-15);
  EXPECT_EQ(LearningRate(linear, 1001), 6e-5);
  EXPECT_EQ(LearningRate(cosine, 5000), 6e-5);
  EXPECT_EQ(LearningRate(Constants(DecayKind::kConstant), 5000), 6e-4);
}

TEST(LearningRateTest, WithoutWarmupTheFirstStepRunsAtTheMaximum) {
  StepConstants c = Constants(DecayKind::kCosine);
  c.warmup_samples = 0;
  EXPECT_EQ(LearningRate(c, 0), 6e-4);
}

TEST(AdvanceStepScalarsTest, TheFirstUpdateRunsAtCounterZero) {
  StepConstants c = Constants(DecayKind::kLinear);
  c.batch_samples = 50;
  c.nominal_tokens = 10;
  c.weight_decay = 0.1;
  StepScalars s;
  const EndOfStep v{.sum_squares = 1, .loss = 1, .tokens = 10};
  AdvanceStepScalars(&s, v, c);
  EXPECT_EQ(s.lr, 0.0);
  EXPECT_EQ(s.weight_decay, 0.1);
  EXPECT_EQ(s.schedule_samples, 50);
  AdvanceStepScalars(&s, v, c);
  EXPECT_NEAR(s.lr, 3e-4, 1e-18);
  EXPECT_EQ(s.adam_step, 2);
  EXPECT_NEAR(s.bias_correction1, 1 - 0.81, 1e-15);
  EXPECT_NEAR(s.bias_correction2, 1 - 0.999 * 0.999, 1e-15);
}

TEST(AdvanceStepScalarsTest, FactorJoinsTokensLossScaleAndClip) {
  StepConstants c = Constants(DecayKind::kLinear);
  c.nominal_tokens = 100;
  StepScalars s;
  s.loss_scale = 4;
  // Gradients carry 4 / 100 a token; 80 tokens counted.
  const EndOfStep v{.sum_squares = 144, .loss = 1, .tokens = 80};
  AdvanceStepScalars(&s, v, c);
  const double to_mean = 100.0 / 80 / 4;
  EXPECT_DOUBLE_EQ(s.factor, to_mean);
  EXPECT_DOUBLE_EQ(s.grad_norm, 12 * to_mean);
  c.clip_grad = 1;
  AdvanceStepScalars(&s, v, c);
  EXPECT_DOUBLE_EQ(s.factor, to_mean * (1 / (12 * to_mean + 1e-6)));
  EXPECT_DOUBLE_EQ(s.grad_norm, 12 * to_mean) << "the norm before clipping";
  c.clip_grad = 100;
  AdvanceStepScalars(&s, v, c);
  EXPECT_DOUBLE_EQ(s.factor, to_mean) << "never scaled up";
}

TEST(AdvanceStepScalarsTest, ASkippedStepMovesOnlyTheSampleCount) {
  StepConstants c = Constants(DecayKind::kLinear);
  c.batch_samples = 8;
  c.nominal_tokens = 10;
  const double inf = std::numeric_limits<double>::infinity();
  const EndOfStep bad[] = {{.sum_squares = 1, .nonfinite = 1, .loss = 1, .tokens = 10},
                           {.sum_squares = inf, .loss = 1, .tokens = 10},
                           {.sum_squares = 1, .loss = inf, .tokens = 10},
                           {.sum_squares = 0, .loss = 0, .tokens = 0}};
  StepScalars s;
  int64_t skipped = 0;
  for (const EndOfStep& v : bad) {
    AdvanceStepScalars(&s, v, c);
    EXPECT_EQ(s.skip, 1);
    EXPECT_EQ(s.skipped_steps, ++skipped);
    EXPECT_EQ(s.consumed_samples, 8 * skipped);
    EXPECT_EQ(s.schedule_samples, 0);
    EXPECT_EQ(s.adam_step, 0);
  }
  AdvanceStepScalars(&s, {.sum_squares = 1, .loss = 1, .tokens = 10}, c);
  EXPECT_EQ(s.skip, 0);
  EXPECT_EQ(s.schedule_samples, 8);
}

}  // namespace
}  // namespace mt::kernels
