// Megatron-LM's log lines: the line of docs/design/megatron-compat.md to the letter, and what a
// line makes of several steps.
#include "common/report/megatron_lines.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatrain/v1/step.pb.h"

namespace mt::report {
namespace {

namespace v1 = megatrain::v1;
using testing::HasSubstr;
using testing::Not;

v1::StepRecord Hundredth() {
  v1::StepRecord step;
  step.set_step(100);
  step.set_time_us(1'767'323'045'000'006);  // 2026-01-02T03:04:05.000006Z
  step.set_loss(6.54321);
  step.set_grad_norm(1.2341);
  step.set_learning_rate(3e-4);
  step.set_loss_scale(1);
  step.set_consumed_samples(1600);
  step.set_step_seconds(0.5123);
  return step;
}

TEST(MegatronLinesTest, OneStepToTheLetter) {
  MegatronLines lines(/*flops_per_sample_and_slot=*/0.5123e12);
  lines.Add(Hundredth());
  EXPECT_EQ(lines.Take(Hundredth(), {.total_steps = 1000, .batch = 16}),
            " [2026-01-02 03:04:05.000006] iteration      100/    1000 | consumed samples:         "
            "1600 | elapsed time per iteration (ms): 512.3 | throughput per GPU (TFLOP/s/GPU): "
            "16.0 | learning rate: 3.000000E-04 | global batch size:    16 | lm loss: "
            "6.543210E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 "
            "| number of nan iterations:   0 |");
}

TEST(MegatronLinesTest, ALineIsTheMeanOfItsSteps) {
  MegatronLines lines(1e12);
  v1::StepRecord step = Hundredth();
  step.set_loss(2);
  step.set_step_seconds(1);
  lines.Add(step);
  step.set_loss(std::numeric_limits<double>::quiet_NaN());
  step.set_skipped(true);
  step.set_step_seconds(2);
  lines.Add(step);
  step.set_loss(100);  // gradients alone overflowed
  lines.Add(step);
  step.set_loss(4);
  step.set_skipped(false);
  step.set_step_seconds(3);
  lines.Add(step);
  const std::string line = lines.Take(step, {.total_steps = 1000, .batch = 4});
  EXPECT_THAT(line, HasSubstr("| elapsed time per iteration (ms): 2000.0 |"));
  EXPECT_THAT(line, HasSubstr("| throughput per GPU (TFLOP/s/GPU): 2.0 |"));
  EXPECT_THAT(line, HasSubstr("| lm loss: 3.000000E+00 |")) << "skipped ones do not count";
  EXPECT_THAT(line, HasSubstr("| number of skipped iterations:   2 |"));
  EXPECT_THAT(line, HasSubstr("| number of nan iterations:   1 |"));
  lines.Add(step);
  EXPECT_THAT(lines.Take(step, {.total_steps = 1000, .batch = 4}),
              HasSubstr("| lm loss: 4.000000E+00 |"))
      << "the next line begins anew";
}

TEST(MegatronLinesTest, ALossThatIsNoNumberAndTheNormOfASkippedStepAreLeftOut) {
  MegatronLines lines(1e12);
  v1::StepRecord step = Hundredth();
  step.set_loss(std::numeric_limits<double>::quiet_NaN());
  lines.Add(step);
  EXPECT_THAT(lines.Take(step, {.total_steps = 1000, .batch = 4}), Not(HasSubstr("lm loss")));
  step.set_skipped(true);
  lines.Add(step);
  EXPECT_THAT(lines.Take(step, {.total_steps = 1000, .batch = 4}), Not(HasSubstr("grad norm")));
}

TEST(MegatronLinesTest, EvaluationsBetweenDashes) {
  const auto during = MegatronEvalLines({.step = 20, .loss = 2});
  EXPECT_EQ(during[1],
            " validation loss at iteration 20 | lm loss value: 2.000000E+00 | lm loss PPL: "
            "7.389056E+00 | ");
  EXPECT_EQ(during[0], std::string(during[1].size() + 1, '-'));
  EXPECT_EQ(during[2], during[0]);
  EXPECT_THAT(MegatronEvalLines({.step = 20, .loss = 30, .final = true})[1],
              HasSubstr("iteration 20 on validation set | lm loss value: 3.000000E+01 | lm loss "
                        "PPL: 4.851652E+08 | "));
}

}  // namespace
}  // namespace mt::report
