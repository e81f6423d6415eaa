// The registry: its text, groups that are removed as a whole, and updates that no scrape sees half
// done.
#include "common/metrics/registry.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/metrics/exposition.h"

namespace mt::metrics {
namespace {

using ::testing::HasSubstr;

TEST(RegistryTest, PrintsWhatWasDeclared) {
  Registry registry;
  AddBuildInfo(&registry, "1.2.3");
  const auto requests = registry.AddCounter("mt_requests_total", "Requests.");
  Counter ok = requests.With({{"code", "OK"}});
  ok.Add();
  ok.Add(2.5);
  registry.AddGauge("mt_temperature_celsius", "Quoted \\ text.")
      .With({{"place", "a\"b\n"}})
      .Set(-4);
  Histogram wait = registry.AddHistogram("mt_wait_seconds", "Wait.", {0.1, 1}).With();
  for (const double seconds : {0.05, 0.5, 5.0}) wait.Observe(seconds);
  const std::string text = registry.Text();
  EXPECT_THAT(text,
              HasSubstr("# HELP mt_requests_total Requests.\n# TYPE mt_requests_total counter\n"));
  EXPECT_THAT(text, HasSubstr("mt_temperature_celsius{place=\"a\\\"b\\n\"} -4\n"));
  const Exposition shown(text);
  EXPECT_EQ(shown.Value("mt_build_info{version=\"1.2.3\"}"), 1);
  EXPECT_EQ(shown.Value("mt_requests_total{code=\"OK\"}"), 3.5);
  EXPECT_EQ(shown.Value("mt_wait_seconds_bucket{le=\"1\"}"), 2);
  EXPECT_EQ(shown.Value("mt_wait_seconds_count"), 3);
  EXPECT_EQ(shown.types().at("mt_wait_seconds"), "histogram");
}

TEST(RegistryTest, CountersStartAtZeroAndOnlyRise) {
  Registry registry;
  Counter counter = registry.AddCounter("mt_a_total", "A.").With();
  EXPECT_EQ(Exposition(registry.Text()).Value("mt_a_total"), 0);
  counter.RaiseTo(5);
  counter.RaiseTo(3);
  EXPECT_EQ(counter.Value(), 5);
  counter.RaiseTo(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(counter.Value(), 5);
}

TEST(RegistryTest, ValuesThatAreNotFiniteStayReadable) {
  Registry registry;
  const auto loss = registry.AddGauge("mt_loss", "Loss.");
  loss.With({{"k", "nan"}}).Set(std::numeric_limits<double>::quiet_NaN());
  loss.With({{"k", "inf"}}).Set(-std::numeric_limits<double>::infinity());
  const Exposition shown(registry.Text());
  EXPECT_TRUE(std::isnan(shown.Value("mt_loss{k=\"nan\"}")));
  EXPECT_TRUE(shown.Has("mt_loss{k=\"nan\"}"));
  EXPECT_EQ(shown.Value("mt_loss{k=\"inf\"}"), -std::numeric_limits<double>::infinity());
}

TEST(RegistryTest, AGroupGoesTogether) {
  Registry registry;
  const auto step = registry.AddGauge("mt_step", "Step.");
  const auto lost = registry.AddCounter("mt_lost_total", "Lost.");
  const auto time = registry.AddHistogram("mt_time_seconds", "Time.", {1});
  SeriesGroup other(Labels{{"mt_job", "b"}});
  other.Add(step).Set(7);
  {
    SeriesGroup group(Labels{{"mt_job", "a"}});
    group.Add(step).Set(1);
    group.Add(lost, {{"cause", "queue"}}).Add();
    group.Add(time).Observe(2);
    EXPECT_EQ(Exposition(registry.Text()).Count("mt_job=\"a\""), 2 + 4);
    SeriesGroup moved = std::move(group);
    EXPECT_EQ(Exposition(registry.Text()).Count("mt_job=\"a\""), 2 + 4);
  }
  const Exposition shown(registry.Text());
  EXPECT_EQ(shown.Count("mt_job=\"a\""), 0);
  EXPECT_EQ(shown.Value("mt_step{mt_job=\"b\"}"), 7);
}

TEST(RegistryTest, NoScrapeSeesHalfOfAnUpdate) {
  Registry registry;
  const auto state = registry.AddGauge("mt_state", "State.");
  Gauge a = state.With({{"state", "A"}});
  Gauge b = state.With({{"state", "B"}});
  a.Set(1);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> updates{0};
  std::thread writer([&] {
    for (bool in_a = true; !stop; in_a = !in_a) {
      updates += registry.TryUpdate([&] {
        a.Set(in_a ? 0 : 1);
        b.Set(in_a ? 1 : 0);
      });
    }
  });
  // On a busy machine the writer may start after all 200 scrapes.
  for (int i = 0; i < 200 || updates < 10; ++i) {
    const Exposition shown(registry.Text());
    EXPECT_EQ(shown.Value("mt_state{state=\"A\"}") + shown.Value("mt_state{state=\"B\"}"), 1);
  }
  stop = true;
  writer.join();
}

TEST(RegistryDeathTest, ANameTwiceIsABug) {
  Registry registry;
  registry.AddGauge("mt_x", "X.");
  EXPECT_DEATH(registry.AddCounter("mt_x", "X."), "declared twice");
}

}  // namespace
}  // namespace mt::metrics
