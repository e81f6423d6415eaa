// Reading and writing a step's metrics by what StepRecord declares.
#include "common/report/step_metrics.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatrain/v1/metric.pb.h"
#include "megatrain/v1/step.pb.h"

namespace mt::report {
namespace {

namespace v1 = megatrain::v1;
using testing::ElementsAre;
using testing::Pair;

TEST(StepMetrics, AreTheFieldsThatDeclareOneByNumber) {
  std::vector<std::string> names;
  for (const StepMetric& metric : StepMetrics()) names.push_back(metric.name());
  ASSERT_GE(names.size(), 18U);
  EXPECT_EQ(names[0], "loss") << "step and time_us are none";
  EXPECT_EQ(names[1], "grad_norm");
  EXPECT_EQ(FindStepMetric("epoch"), nullptr);
  EXPECT_EQ(FindStepMetric("bubble")->name(), "bubble");
  EXPECT_EQ(&FindStepMetric("bubble")->declared(), &FindStepMetric("bubble")->declared());
  EXPECT_EQ(FindStepMetric("bubble")->declared().gauge().name(), "mt_pipeline_bubble_ratio");
}

TEST(StepMetrics, ValuesComeBack) {
  v1::StepRecord step;
  for (const StepMetric& metric : StepMetrics()) {
    if (metric.is_map()) continue;
    metric.SetValue(&step, metric.is_bool() ? 1 : metric.number() * 1e9);
  }
  for (const StepMetric& metric : StepMetrics()) {
    if (metric.is_map()) continue;
    EXPECT_TRUE(metric.IsReported(step));
    EXPECT_EQ(metric.Value(step), metric.is_bool() ? 1 : metric.number() * 1e9) << metric.name();
  }
  EXPECT_EQ(step.loss(), 3e9);
  EXPECT_EQ(step.tokens(), 7'000'000'000);
  EXPECT_TRUE(step.skipped());
  EXPECT_TRUE(FindStepMetric("tokens")->is_integer());
  EXPECT_TRUE(FindStepMetric("skipped")->is_integer());
  EXPECT_TRUE(FindStepMetric("memory_bytes")->is_integer());
  EXPECT_FALSE(FindStepMetric("phase_seconds")->is_integer());
  EXPECT_FALSE(FindStepMetric("loss")->is_integer());
}

// What a history does not know: a loss may be NaN, a count may not, and an `optional` field is
// unset.
TEST(StepMetrics, NaNIsNotReported) {
  v1::StepRecord step;
  for (const StepMetric& metric : StepMetrics()) {
    if (metric.is_map()) continue;
    metric.SetValue(&step, 1);
    metric.SetValue(&step, std::numeric_limits<double>::quiet_NaN());
    EXPECT_EQ(metric.Value(step) == 0, metric.is_integer()) << metric.name();
  }
  EXPECT_FALSE(step.has_launch_seconds());
  EXPECT_FALSE(FindStepMetric("launch_seconds")->IsReported(step));
  step.set_launch_seconds(0);
  EXPECT_TRUE(FindStepMetric("launch_seconds")->IsReported(step)) << "a zero that was measured";
  EXPECT_TRUE(std::isnan(step.loss()));
  EXPECT_EQ(step.tokens(), 0);
  EXPECT_FALSE(step.skipped());
}

TEST(StepMetrics, EntriesOfAMapAreSorted) {
  v1::StepRecord step;
  (*step.mutable_memory_bytes())["weights"] = 3;
  (*step.mutable_memory_bytes())["comm"] = 4;
  EXPECT_THAT(FindStepMetric("memory_bytes")->Entries(step),
              ElementsAre(Pair("comm", 4), Pair("weights", 3)));
}

TEST(StepMetrics, AreOrderedByPlaceAndThenByNumber) {
  const auto ordered = StepMetricsInOrder([](const StepMetric& metric) -> std::optional<int> {
    if (metric.name() == "bubble") return 4;
    if (metric.name() == "learning_rate") return 4;
    if (metric.name() == "grad_norm" || metric.name() == "loss") return 0;  // 4 and 3
    return std::nullopt;
  });
  std::vector<std::string> names;
  for (const StepMetric* metric : ordered) names.push_back(metric->name());
  EXPECT_THAT(names, ElementsAre("loss", "grad_norm", "learning_rate", "bubble"));
}

// Places of which one would hide the other, and names that Prometheus would refuse.
TEST(StepMetrics, DeclarationsAreSound) {
  std::set<std::string> gauges;
  std::set<int> files;
  for (const StepMetric& metric : StepMetrics()) {
    const v1::Metric& declared = metric.declared();
    EXPECT_FALSE(declared.unit().empty()) << metric.name();
    if (declared.has_gauge()) {
      EXPECT_TRUE(gauges.insert(declared.gauge().name()).second) << metric.name();
      EXPECT_FALSE(metric.is_map()) << metric.name();
      EXPECT_THAT(declared.gauge().help(), testing::EndsWith(".")) << metric.name();
    }
    if (declared.file_order() != 0) {
      EXPECT_TRUE(files.insert(declared.file_order()).second) << metric.name();
    }
    EXPECT_LE(declared.has_panel(), declared.has_gauge()) << "nothing to draw: " << metric.name();
  }
}

}  // namespace
}  // namespace mt::report
