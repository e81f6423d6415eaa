// Forms of output without a coordinator: YAML, metric points, contexts, completion scripts.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "client/output/format.h"
#include "client/output/metric_text.h"
#include "client/output/metrics.h"
#include "client/output/style.h"
#include "client/output/yaml.h"
#include "client/session/contexts.h"
#include "common/base/files.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/metric.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;
using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(YamlTest, BlockStyleWithTheSameOrder) {
  const ordered_json tree = ordered_json::parse(
      R"({"jobs":[{"name":"a","ranks":[1,2],"spec":{},"x":null},{"name":"b"}],"empty":[],"ok":true})");
  EXPECT_EQ(YamlText(tree),
            "jobs:\n"
            "  - name: a\n"
            "    ranks:\n"
            "      - 1\n"
            "      - 2\n"
            "    spec: {}\n"
            "    x: null\n"
            "  - name: b\n"
            "empty: []\n"
            "ok: true\n");
  EXPECT_EQ(YamlText(ordered_json::array()), "[]\n");
}

// Text that YAML could read as another type comes back unchanged.
TEST(YamlTest, TextsSurviveAReader) {
  const std::vector<std::string> texts = {"",
                                          "true",
                                          "No",
                                          "null",
                                          "~",
                                          "12",
                                          "1e3",
                                          "0x1f",
                                          "-",
                                          "- a",
                                          "a: b",
                                          "a #b",
                                          "#c",
                                          "&x",
                                          "*y",
                                          "!t",
                                          "%d",
                                          "@at",
                                          "`",
                                          "{a}",
                                          "[b]",
                                          "a\nb",
                                          "tab\there",
                                          "quote\"d",
                                          "back\\",
                                          "ünï",
                                          " space ",
                                          "2026-01-01",
                                          ".inf",
                                          "/a/b.c",
                                          "lr=1e-3",
                                          "\x01"
                                          "bell"};
  ordered_json tree = {{"texts", texts}};
  for (const std::string& text : texts) tree["keys"][text] = text;
  const YAML::Node read = YAML::Load(YamlText(tree));
  ASSERT_EQ(read["texts"].size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_TRUE(read["texts"][i].IsScalar()) << texts[i];
    EXPECT_EQ(read["texts"][i].Scalar(), texts[i]);
    EXPECT_EQ(read["keys"][texts[i]].Scalar(), texts[i]);
  }
  // A YAML reader distinguishes text from other types by its quotes.
  EXPECT_THAT(YamlText(ordered_json{{"a", "true"}, {"b", "12"}}), "a: \"true\"\nb: \"12\"\n");
}

TEST(StyleTest, TimesAndColours) {
  const int64_t then = 1'700'000'000'000'000;
  const Style relative{.now_us = then + 185'000'000};
  EXPECT_EQ(TimeCell(relative, then), "3m05s");
  EXPECT_EQ(TimeText(relative, then), "2023-11-14T22:13:20Z (3m05s ago)");
  EXPECT_EQ(TimeCell(relative, 0), "-");
  EXPECT_EQ(TimeCell({.time = TimeFormat::kIso}, then), "2023-11-14T22:13:20Z");
  EXPECT_EQ(TimeText({.time = TimeFormat::kRaw}, then), "1700000000000000");
  EXPECT_EQ(Paint({}, Tone::kBad, "x"), "x");
  const std::string red = Paint({.color = true}, Tone::kBad, "x");
  EXPECT_EQ(red, "\033[31mx\033[0m");
  EXPECT_EQ(DisplayWidth(red), 1U);
  EXPECT_EQ(DisplayWidth("ünï"), 3U);
  std::vector<size_t> widths;
  EXPECT_EQ(Table({{"A", "B"}, {"long", red}}, &widths), "A     B\nlong  " + red + "\n");
  EXPECT_EQ(Table({{"s", "t"}}, &widths), "s     t\n");  // aligned with the previous table
}

v1::History TwoBuckets() {
  v1::History history;
  history.set_level(1);
  auto* loss = history.add_columns();
  loss->set_name("loss");
  auto* tokens = history.add_columns();
  tokens->set_name("tokens");
  for (int i = 0; i < 2; ++i) {
    history.add_steps(16 * (i + 1));
    history.add_times_us(1000 * i);
    history.add_epochs(1);
    loss->add_last(2.5 - i);
    loss->add_min(2.25 - i);
    loss->add_max(i == 0 ? std::nan("") : 3.0);
    tokens->add_last(4096);
  }
  auto* eval = history.add_evals();
  eval->set_step(20);
  eval->set_loss(1.75);
  eval->set_perplexity(5.5);
  eval->set_bits_per_byte(2.5);
  return history;
}

TEST(MetricsTest, PointsOfManyStepsHaveTheirRange) {
  const Metrics metrics = FromHistory(TwoBuckets());
  EXPECT_EQ(
      MetricsJsonl(metrics),
      "{\"step\":16,\"time_us\":0,\"epoch\":1,\"loss\":2.5,\"loss_min\":2.25,\"loss_max\":null,"
      "\"tokens\":4096}\n"
      "{\"step\":32,\"time_us\":1000,\"epoch\":1,\"loss\":1.5,\"loss_min\":1.25,\"loss_max\":3.0,"
      "\"tokens\":4096,\"validation_loss\":1.75,\"validation_perplexity\":5.5,"
      "\"validation_bits_per_byte\":2.5}\n");
  EXPECT_EQ(
      MetricsCsv(metrics, true),
      "step,time_us,epoch,loss,loss_min,loss_max,tokens,tokens_min,tokens_max,validation_loss,"
      "validation_perplexity,validation_bits_per_byte\r\n"
      "16,0,1,2.5,2.25,,4096,,,,,\r\n"
      "32,1000,1,1.5,1.25,3,4096,,,1.75,5.5,2.5\r\n");
  EXPECT_EQ(Table(MetricsRows(metrics, {}, false)),
            "STEP  AGE  LOSS    VALID   VALID BITS\n"
            "16    -    2.5000  -       -\n"
            "32    0s   1.5000  1.7500  2.5000\n");
  EXPECT_EQ(Select(metrics, {"tokens", "nothing"}).names, std::vector<std::string>{"tokens"});
}

TEST(MetricsTest, ALiveStepHasTheNamesOfTheHistory) {
  v1::StepRecord step;
  step.set_step(3);
  step.set_loss(2.5);
  step.set_skipped(true);
  (*step.mutable_phase_seconds())["forward"] = 0.25;
  (*step.mutable_memory_bytes())["weights"] = 1 << 20;
  const auto line = nlohmann::json::parse(MetricsJsonl(FromStep(step)));
  EXPECT_EQ(line.at("step"), 3);
  EXPECT_EQ(line.at("loss"), 2.5);
  EXPECT_EQ(line.at("skipped"), 1.0);
  EXPECT_EQ(line.at("phase_seconds/forward"), 0.25);
  EXPECT_TRUE(line.at("memory_bytes/weights").is_number_integer());
}

// A value for each metric: its field's number.
v1::StepRecord FullStep() {
  v1::StepRecord step;
  step.set_step(3);
  for (const report::StepMetric& metric : report::StepMetrics()) {
    if (!metric.is_map()) metric.SetValue(&step, metric.number());
  }
  (*step.mutable_phase_seconds())["forward"] = 0.25;
  (*step.mutable_phase_seconds())["backward"] = 0.5;
  (*step.mutable_phase_seconds())["ckpt"] = 0;
  (*step.mutable_memory_bytes())["weights"] = 1 << 20;
  (*step.mutable_memory_bytes())["comm"] = 0;
  return step;
}

TEST(MetricsTest, ColumnsHaveAnOrder) {
  const Metrics metrics = FromStep(FullStep());
  EXPECT_THAT(
      MetricsCsv(metrics, true),
      testing::StartsWith("step,time_us,epoch,loss,grad_norm,learning_rate,loss_scale,tokens,"
                          "consumed_samples,skipped,step_seconds,model_flops,tflops_per_slot,"
                          "tokens_per_second,host_memory_bytes,skipped_steps,model_flops_full,"
                          "tflops_per_slot_full,bubble,"));
  EXPECT_THAT(MetricsCsv(metrics, false),
              testing::StartsWith("3,0,0,3,4,5,6,7,8,1,10,12,13,14,16,18,19,20,21,"));
  EXPECT_THAT(MetricsCsv(metrics, true),
              testing::HasSubstr(",phase_seconds/backward,phase_seconds/ckpt,phase_seconds/forward,"
                                 "memory_bytes/comm,memory_bytes/weights,validation_loss,"
                                 "validation_perplexity,validation_bits_per_byte\r\n"));
  EXPECT_EQ(Table(MetricsRows(metrics, {}, false)),
            "STEP  AGE  LOSS    BITS/BYTE  LR         GRAD NORM  TOK/S  STEP S   TFLOP/S  VALID\n"
            "3     -    3.0000  25.0000    5.000e+00  4.0000     14     10.0000  13       -\n");
  // A tokenizer that does not know bytes.
  v1::StepRecord step = FullStep();
  step.clear_bits_per_byte();
  EXPECT_THAT(Table(MetricsRows(FromStep(step), {}, false)),
              testing::HasSubstr("\n3     -    3.0000  -          5.000e+00"));
}

TEST(MetricsTest, AnEvaluationInTheUnitsThatAreKnown) {
  v1::EvalRecord eval;
  eval.set_loss(1.9739);
  EXPECT_EQ(LossUnitsText(eval), "") << "of an earlier version";
  eval.set_perplexity(7.19869);
  EXPECT_EQ(LossUnitsText(eval), ", perplexity 7.199");
  eval.set_bits_per_byte(2.86647);
  EXPECT_EQ(LossUnitsText(eval), ", perplexity 7.199, 2.8665 bits per byte");
}

TEST(MetricsTest, TextsSayWhatTheyAreOf) {
  std::string described;
  for (const report::StepMetric* metric : MetricsShown(MetricPlace::kDescribe)) {
    described += MetricLabel(*metric, MetricPlace::kDescribe) + ": " +
                 MetricText(*metric, MetricPlace::kDescribe, FullStep()) + "\n";
  }
  EXPECT_THAT(described,
              testing::StartsWith("Loss: 3.000000\n"
                                  "Loss: perplexity 24\n"
                                  "Loss: 25.0000 bits per byte\n"
                                  "Learning rate: 5.0000e+00\n"
                                  "Grad norm: 4.0000\n"
                                  "Speed: 14 tokens/s\n"
                                  "Speed: 13 TFLOP/s per slot\n"
                                  "Speed: 10.000 s per step\n"
                                  "Phases, rank 0: backward 0.500 s, forward 0.250 s\n"
                                  "Bubble: 2100.0 % of the pipeline's time, mean over ranks\n"
                                  "Memory, rank 0: comm 0 B, weights 1.0 MiB\n"
                                  "Memory, rank 0: process 16 B\n"
                                  "Skipped steps: 18\n"
                                  "Memory, rank 0: mapped files 23 B\n"
                                  "Launch, rank 0: 22.000 s to enqueue the step\n"));
  // A step that reports nothing: what is hidden where it is zero.
  for (const report::StepMetric* metric : MetricsShown(MetricPlace::kDescribe)) {
    if (metric->declared().describe().hide_zero()) {
      EXPECT_EQ(MetricText(*metric, MetricPlace::kDescribe, v1::StepRecord()), "")
          << metric->name();
    }
  }
}

class ContextsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mt-contexts-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/a/config.yaml";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Fault(const std::string& text) {
    std::filesystem::create_directories(folder_ + "/a");
    std::ofstream(path_) << text;
    return base::Message(ReadContexts(path_).status());
  }
  std::string folder_, path_;
};

TEST_F(ContextsTest, WrittenAndReadAgain) {
  EXPECT_TRUE(ReadContexts(path_)->contexts.empty());
  const ContextFile file{
      .current = "lab",
      .contexts = {{.name = "lab", .endpoint = "head:7070", .job_namespace = "nlp"},
                   {.name = "true", .endpoint = "[::1]:1", .job_namespace = ""}}};
  ASSERT_TRUE(WriteContexts(path_, file).ok());
  const auto read = ReadContexts(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->current, "lab");
  ASSERT_EQ(read->contexts.size(), 2U);
  EXPECT_EQ(read->Find("lab")->job_namespace, "nlp");
  EXPECT_EQ(read->Find("true")->endpoint, "[::1]:1");
  EXPECT_THAT(base::Message(NamedContext(*read, "x").status()), HasSubstr("lab, true"));
}

TEST_F(ContextsTest, ErrorsNameFileAndLine) {
  EXPECT_EQ(Fault("current: x\n"), path_ + ":1: current context x is not in the list");
  EXPECT_THAT(Fault("contexts:\n  - name: a\n    endpoint: h:1\n    color: red\n"),
              HasSubstr(path_ + ":4: unknown key color"));
  EXPECT_THAT(Fault("contexts:\n  - name: a\n    endpoint: h:1:2:x\n"), HasSubstr(path_ + ":3: "));
  EXPECT_THAT(Fault("contexts:\n  - name: a\n    endpoint: h:1\n  - {name: a, endpoint: b}\n"),
              HasSubstr(path_ + ":4: context a is there twice"));
  EXPECT_THAT(Fault("contexts: [\n\n"), HasSubstr(path_ + ":"));
  EXPECT_THAT(Fault("- a\n"), HasSubstr(path_ + ":1: expected current:"));
}

}  // namespace
}  // namespace mt::client
