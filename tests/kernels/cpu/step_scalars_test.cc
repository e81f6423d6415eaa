// The StepScalars block: learning rates, weight decay and loss scale against values printed by
// Megatron-LM's scheduler and gradient scaler, clipping, and the fields that a skipped step
// changes.
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

constexpr DecayKind kAllDecays[] = {DecayKind::kConstant, DecayKind::kLinear, DecayKind::kCosine,
                                    DecayKind::kInverseSqrt, DecayKind::kWsd};

TEST(LearningRateTest, WarmupRisesFromItsInitialValue) {
  for (const DecayKind decay : kAllDecays) {
    StepConstants c = Constants(decay);
    EXPECT_NEAR(LearningRate(c, 50), 3e-4, 1e-18);
    c.warmup_init = 1e-4;
    EXPECT_EQ(LearningRate(c, 0), 1e-4);
    EXPECT_NEAR(LearningRate(c, 50), 3.5e-4, 1e-18);
    EXPECT_NEAR(LearningRate(c, 100), 6e-4, 1e-18);
  }
}

TEST(LearningRateTest, InverseSqrtGoldensAndTheJumpToTheMinimum) {
  StepConstants c = Constants(DecayKind::kInverseSqrt);
  EXPECT_NEAR(LearningRate(c, 101), 5.97022314e-4, 5e-13);
  EXPECT_NEAR(LearningRate(c, 1000), 1.8973666e-4, 5e-12);
  EXPECT_EQ(LearningRate(c, 1001), 6e-5);
  c.min_lr = 3e-4;
  EXPECT_EQ(LearningRate(c, 1000), 3e-4) << "never below the minimum";
  c.warmup_samples = 0;
  EXPECT_EQ(LearningRate(c, 0), 6e-4) << "counts as one sample";
}

double WsdAt900(WsdStyle style) {
  StepConstants c = Constants(DecayKind::kWsd);
  c.wsd_samples = 200;
  c.wsd_style = style;
  EXPECT_EQ(LearningRate(c, 800), 6e-4) << "stable until the last part";
  EXPECT_LT(LearningRate(c, 801), 6e-4);
  EXPECT_NEAR(LearningRate(c, 1000), 6e-5, 1e-18);
  EXPECT_EQ(LearningRate(c, 1001), 6e-5);
  return LearningRate(c, 900);
}

TEST(LearningRateTest, WsdGoldensInItsFourStyles) {
  EXPECT_NEAR(WsdAt900(WsdStyle::kLinear), 3.3e-4, 1e-15);
  EXPECT_NEAR(WsdAt900(WsdStyle::kCosine), 3.3e-4, 1e-15);
  EXPECT_NEAR(WsdAt900(WsdStyle::kExponential), 2.83675324e-4, 5e-13);
  EXPECT_NEAR(WsdAt900(WsdStyle::kMinusSqrt), 2.18162338e-4, 5e-13);
}

TEST(WeightDecayTest, Schedules) {
  StepConstants c;
  c.weight_decay = 0.1;
  EXPECT_EQ(WeightDecay(c, 0), 0.1);
  EXPECT_EQ(WeightDecay(c, 1 << 30), 0.1) << "constant";
  c.weight_decay = 0;
  c.weight_decay_end = 0.1;
  c.weight_decay_samples = 1000;
  c.weight_decay_kind = WeightDecayKind::kCosine;
  EXPECT_EQ(WeightDecay(c, 0), 0.0);
  EXPECT_NEAR(WeightDecay(c, 250), 0.0146446609, 5e-11);
  EXPECT_NEAR(WeightDecay(c, 500), 0.05, 1e-16);
  EXPECT_EQ(WeightDecay(c, 1001), 0.1);
  c.weight_decay_kind = WeightDecayKind::kLinear;
  c.weight_decay = 0.3;
  EXPECT_NEAR(WeightDecay(c, 250), 0.25, 1e-16);
  EXPECT_EQ(WeightDecay(c, 5000), 0.1);
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

// A step of a scaler's run; overflow as a non-finite element.
EndOfStep Step(bool overflow) {
  return {.sum_squares = 1, .nonfinite = overflow ? 1.0 : 0.0, .loss = 1, .tokens = 10};
}

StepConstants DynamicScale() {
  StepConstants c = Constants(DecayKind::kLinear);
  c.batch_samples = 8;
  c.nominal_tokens = 10;
  c.loss_scale = {.kind = LossScaleKind::kDynamic, .initial = 65536, .window = 4, .hysteresis = 2};
  return c;
}

TEST(LossScaleTest, DynamicScaleFollowsMegatronsSequence) {
  const StepConstants c = DynamicScale();
  const bool overflow[] = {1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  const double expected[] = {65536, 65536, 32768, 16384, 16384, 16384, 16384, 32768, 32768, 32768,
                             16384, 16384, 16384, 16384, 32768, 32768, 32768, 32768, 65536};
  StepScalars s = InitialStepScalars(c);
  EXPECT_EQ(s.loss_scale, 65536);
  int64_t taken = 0;
  for (size_t i = 0; i < std::size(overflow); ++i) {
    const StepScalars before = s;
    AdvanceStepScalars(&s, Step(overflow[i]), c);
    EXPECT_EQ(s.loss_scale, expected[i]) << "step " << i;
    EXPECT_EQ(s.skip, overflow[i] ? 1 : 0);
    EXPECT_EQ(s.consumed_samples, 8 * static_cast<int64_t>(i + 1));
    if (overflow[i]) {
      EXPECT_EQ(s.lr, before.lr) << "the rate does not move on a skipped step";
      EXPECT_EQ(s.schedule_samples, before.schedule_samples);
      EXPECT_EQ(s.adam_step, before.adam_step);
    } else {
      EXPECT_EQ(s.lr, LearningRate(c, 8 * taken)) << "as if skipped steps had not been";
      EXPECT_DOUBLE_EQ(s.factor, 1 / before.loss_scale) << "the scale that the gradients carry";
      ++taken;
    }
  }
}

TEST(LossScaleTest, NeverFallsBelowTheMinimum) {
  StepConstants c = DynamicScale();
  c.loss_scale.min = 1000;
  StepScalars s = InitialStepScalars(c);
  for (int i = 0; i < 10; ++i) AdvanceStepScalars(&s, Step(true), c);
  EXPECT_EQ(s.loss_scale, 1000);
}

TEST(LossScaleTest, AStepWithoutTokensIsNoOverflow) {
  const StepConstants c = DynamicScale();
  StepScalars s = InitialStepScalars(c);
  AdvanceStepScalars(&s, Step(false), c);
  for (int i = 0; i < 5; ++i) AdvanceStepScalars(&s, {}, c);
  EXPECT_EQ(s.skipped_steps, 5);
  EXPECT_EQ(s.loss_scale, 65536);
  EXPECT_EQ(s.clean_steps, 1) << "nor a clean step";
}

TEST(LossScaleTest, StaticScaleStaysAndOverflowsAreSkipped) {
  StepConstants c = Constants(DecayKind::kLinear);
  c.nominal_tokens = 10;
  c.loss_scale.initial = 128;
  StepScalars s = InitialStepScalars(c);
  for (int i = 0; i < 2500; ++i) AdvanceStepScalars(&s, Step(i % 2 == 0), c);
  EXPECT_EQ(s.loss_scale, 128);
  EXPECT_EQ(s.skipped_steps, 1250);
  EXPECT_DOUBLE_EQ(s.factor, 1.0 / 128);
}

TEST(LossScaleTest, WithoutOneTheBlockStartsAsItAlwaysDid) {
  const StepScalars s = InitialStepScalars({}), plain;
  EXPECT_EQ(s.loss_scale, plain.loss_scale);
  EXPECT_EQ(s.hysteresis, plain.hysteresis);
}

TEST(AdvanceStepScalarsTest, WeightDecayIsAFunctionOfTheSameCounter) {
  StepConstants c = Constants(DecayKind::kConstant);
  c.batch_samples = 50;
  c.nominal_tokens = 10;
  c.weight_decay_end = 1;
  c.weight_decay_kind = WeightDecayKind::kLinear;
  c.weight_decay_samples = 100;
  StepScalars s;
  AdvanceStepScalars(&s, Step(false), c);
  EXPECT_EQ(s.weight_decay, 0.0);
  AdvanceStepScalars(&s, Step(true), c);
  EXPECT_EQ(s.weight_decay, 0.0);
  AdvanceStepScalars(&s, Step(false), c);
  EXPECT_EQ(s.weight_decay, 0.5);
}

}  // namespace
}  // namespace mt::kernels
