// Which scalars steps and evaluations have, and under which tags.
#include "common/tensorboard/scalars.h"

#include <cmath>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/report/step_metrics.h"
#include "megatrain/v1/types.pb.h"

namespace mt::tensorboard {
namespace {

namespace v1 = megatrain::v1;
using testing::ElementsAre;
using testing::Optional;

std::map<std::string, double> ByTag(const std::vector<Scalar>& scalars) {
  std::map<std::string, double> out;
  for (const Scalar& scalar : scalars)
    EXPECT_TRUE(out.emplace(scalar.tag, scalar.value).second) << scalar.tag << " comes twice";
  return out;
}

TEST(ScalarsTest, MegatronsNamesWhereItHasThem) {
  EXPECT_EQ(TagOf("loss"), "lm loss");
  EXPECT_EQ(TagOf("grad_norm"), "grad-norm");
  EXPECT_EQ(TagOf("learning_rate"), "learning-rate");
  EXPECT_EQ(TagOf("loss_scale"), "loss-scale");
  EXPECT_EQ(TagOf("step_seconds"), "iteration-time");
  EXPECT_EQ(TagOf("tflops_per_slot"), "throughput");
  EXPECT_EQ(TagOf("tokens_per_second"), "tokens_per_second");
  EXPECT_EQ(TagOf("phase_seconds/forward"), "phase_seconds/forward");
  EXPECT_EQ(TagOf("of a later version"), "of a later version");
}

TEST(ScalarsTest, AStepHasEveryMetricThatItReports) {
  v1::StepRecord step;
  step.set_step(1);
  step.set_consumed_samples(8);
  step.set_loss(std::numeric_limits<double>::quiet_NaN());
  step.set_learning_rate(0);
  (*step.mutable_phase_seconds())["forward"] = 0.25;
  const auto by_tag = ByTag(ScalarsOf(step, 8));
  EXPECT_TRUE(std::isnan(by_tag.at("lm loss"))) << "it was reported so";
  EXPECT_EQ(by_tag.at("learning-rate"), 0);
  EXPECT_EQ(by_tag.at("phase_seconds/forward"), 0.25);
  EXPECT_EQ(by_tag.at("batch-size"), 8);
  EXPECT_EQ(by_tag.at("consumed_samples"), 8);
  EXPECT_FALSE(by_tag.contains("perplexity")) << "not reported";
  size_t plain = 0;
  for (const report::StepMetric& metric : report::StepMetrics())
    plain += !metric.is_map() && metric.IsReported(step) ? 1 : 0;
  EXPECT_EQ(by_tag.size(), plain + 2) << "a phase and the batch besides";
  EXPECT_FALSE(ByTag(ScalarsOf(step, std::nullopt)).contains("batch-size"));
}

TEST(ScalarsTest, TheSizeOfAStepIsWhatItConsumed) {
  BatchSizes from_the_start;
  EXPECT_THAT(from_the_start.Next(1, 4), Optional(4));
  EXPECT_THAT(from_the_start.Next(2, 12), Optional(8));
  EXPECT_EQ(from_the_start.Next(5, 40), std::nullopt) << "two steps are missing";
  EXPECT_THAT(from_the_start.Next(6, 48), Optional(8));
  EXPECT_EQ(from_the_start.Next(6, 48), std::nullopt) << "the same again";
  BatchSizes resumed;
  EXPECT_EQ(resumed.Next(11, 88), std::nullopt);
  EXPECT_THAT(resumed.Next(12, 96), Optional(8));
}

TEST(ScalarsTest, EvaluationsByNameAndTheLastOneByItself) {
  v1::EvalRecord eval;
  eval.set_split("valid");
  eval.set_loss(2);
  EXPECT_THAT(ScalarsOf(eval), ElementsAre(Scalar{"lm loss validation", 2}));
  eval.set_perplexity(7.5);
  eval.set_bits_per_byte(1.25);
  eval.set_final(true);
  EXPECT_THAT(ScalarsOf(eval), ElementsAre(Scalar{"lm loss validation final", 2},
                                           Scalar{"lm loss validation ppl final", 7.5},
                                           Scalar{"bits_per_byte validation final", 1.25}));
  eval.set_split("test");
  EXPECT_EQ(ScalarsOf(eval)[0].tag, "lm loss test final");
}

}  // namespace
}  // namespace mt::tensorboard
