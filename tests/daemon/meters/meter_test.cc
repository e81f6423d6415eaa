// What /metrics shows of a coordinator: the table of METRICS.md, values, budgets, and series that
// go.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/metrics/registry.h"
#include "common/report/step_metrics.h"
#include "daemon/meters/coordinator_meter.h"
#include "megatrain/v1/metric.pb.h"
#include "tests/common/metrics/exposition.h"
#include "tests/daemon/core/history_core_fixture.h"
#include "tests/paths.h"

namespace mt::daemon {
namespace {

using metrics::Exposition;

class MeterTest : public HistoryCoreTest {
 protected:
  void SetUp() override {
    HistoryCoreTest::SetUp();
    meter_ = std::make_unique<CoordinatorMeter>(CoordinatorMeter::Config{.registry = &registry_,
                                                                         .clock = &clock_,
                                                                         .history = history_.get(),
                                                                         .state_dir = folder_,
                                                                         .version = "1.2.3"});
    Scrape();
  }
  Exposition Scrape() {
    Pass(std::chrono::seconds(1));
    meter_->Update(*core_);
    meter_->UpdateProcess();
    return Exposition(registry_.Text());
  }
  static std::string Of(const std::string& name, const std::string& more = "",
                        const std::string& job = "demo") {
    return name + "{" + more + (more.empty() ? "" : ",") + "mt_job=\"" + job +
           "\",mt_namespace=\"default\"}";
  }
  // Labels come in no fixed order.
  static double Value(const Exposition& shown, const std::string& name, const std::string& label) {
    for (const std::string& series :
         {Of(name, label), name + "{mt_job=\"demo\"," + label + ",mt_namespace=\"default\"}",
          name + "{mt_job=\"demo\",mt_namespace=\"default\"" + (label.empty() ? "" : "," + label) +
              "}",
          name + "{mt_namespace=\"default\",mt_job=\"demo\"" + (label.empty() ? "" : "," + label) +
              "}",
          name + "{mt_namespace=\"default\"," + label + ",mt_job=\"demo\"}",
          name + "{" + label + (label.empty() ? "" : ",") +
              "mt_namespace=\"default\",mt_job=\"demo\"}"}) {
      if (shown.Has(series)) return shown.Value(series);
    }
    return -1e9;
  }
  // A step with everything that a rank reports.
  v1::WorkerMessage FullSteps(const v1::Job& job, int64_t first, int64_t last) {
    v1::WorkerMessage message = StepsMessage(job, first, last);
    for (v1::StepRecord& step : *message.mutable_steps()->mutable_steps()) {
      step.set_time_us(1'000'000 * step.step());
      step.set_loss(2.5);
      step.set_grad_norm(0.5);
      step.set_learning_rate(1e-4);
      step.set_loss_scale(1024);
      step.set_bubble(0.2);
      step.set_tokens(100);
      step.set_step_seconds(2);
      step.set_model_flops(1e9);
      step.set_model_flops_full(1.2e9);
      step.set_tokens_per_second(50);
      step.set_skipped(step.step() == 2);
      for (const report::StepMetric& metric : report::StepMetrics()) {
        if (!metric.is_map() && !metric.IsReported(step)) metric.SetValue(&step, 1);
      }
    }
    return message;
  }

  // A loss of 3, in other units where they are given.
  void ReportEvaluation(Worker& worker, const v1::Job& job, double perplexity = 0,
                        double bits_per_byte = 0) {
    v1::WorkerMessage message;
    message.mutable_job_report()->set_job_uid(job.uid());
    message.mutable_job_report()->set_epoch(job.epoch());
    v1::EvalRecord& eval = *message.mutable_job_report()->mutable_eval();
    eval.set_loss(3);
    if (perplexity > 0) eval.set_perplexity(perplexity);
    if (bits_per_byte > 0) eval.set_bits_per_byte(bits_per_byte);
    Report(worker, std::move(message));
  }

  void ReportRun(Worker& worker, const v1::Job& job, const std::string& run) {
    v1::WorkerMessage message;
    message.mutable_job_report()->set_job_uid(job.uid());
    message.mutable_job_report()->set_epoch(job.epoch());
    message.mutable_job_report()->mutable_run_info()->mutable_run()->set_id(run);
    Report(worker, std::move(message));
  }

  metrics::Registry registry_;
  std::unique_ptr<CoordinatorMeter> meter_;
};

TEST_F(MeterTest, ShowsWhatTheTableSaysAndNothingElse) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job =
      StartRunning(worker, "demo", 1, "checkpoint: {every_iters: 5, every: 60s, second: copies}\n");
  Report(worker, FullSteps(job, 1, 3));
  ReportEvaluation(worker, job, 20.5, 1.25);
  v1::WorkerMessage saved;
  saved.mutable_job_report()->set_job_uid(job.uid());
  saved.mutable_job_report()->set_epoch(job.epoch());
  saved.mutable_job_report()->mutable_checkpoint_saved()->set_step(3);
  saved.mutable_job_report()->mutable_checkpoint_saved()->set_time_us(9);
  Report(worker, saved);
  ReportRun(worker, job, "run-a");
  const Exposition shown = Scrape();
  std::map<std::string, std::string> table;
  std::ifstream file(std::string(MT_SOURCE_DIR) + "/daemon/meters/METRICS.md");
  const std::regex row(R"(\| `([a-z_]+)` \*? ?\| ([a-z]+) \|.*)");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_match(line, match, row)) table[match[1]] = match[2];
  }
  EXPECT_GT(table.size(), 50U);
  // Gauges of a step's metrics with their unit, as StepRecord declares them.
  const std::string page_text = base::ReadFile(MT_SOURCE_DIR "/daemon/meters/METRICS.md").value();
  for (const report::StepMetric& metric : report::StepMetrics()) {
    if (!metric.declared().has_gauge()) continue;
    const v1::Metric::Gauge& gauge = metric.declared().gauge();
    const std::string unit = metric.declared().unit() + (gauge.per_second() ? "/s" : "");
    EXPECT_NE(page_text.find(fmt::format("| `{}` * | gauge | {} | | ", gauge.name(), unit)),
              std::string::npos)
        << gauge.name();
  }
  // Those of gRPC are the server's (coordinator_test.cc).
  std::erase_if(table, [](const auto& entry) { return entry.first.starts_with("grpc_"); });
  EXPECT_EQ(shown.types(), table);
  EXPECT_LE(shown.Count("mt_job=\"demo\""), 64) << "T2";
  if (std::system("command -v promtool >/dev/null") != 0) {
    ASSERT_EQ(std::getenv("MT_REQUIRE_ROOT"), nullptr) << "promtool is not installed";
    GTEST_SKIP() << "promtool is not installed (Debian: prometheus)";
  }
  const std::string page = folder_ + "/page";
  std::ofstream(page) << registry_.Text();
  EXPECT_EQ(std::system(("promtool check metrics <" + page).c_str()), 0);
}

TEST_F(MeterTest, AJobsValues) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Exposition shown = Scrape();
  EXPECT_EQ(Value(shown, "mt_job_state", "state=\"RUNNING\""), 1);
  EXPECT_EQ(Value(shown, "mt_job_state", "state=\"QUEUED\""), 0);
  EXPECT_EQ(shown.Count("mt_job_state{"), 14);
  EXPECT_EQ(Value(shown, "mt_job_tokens_total", ""), 0) << "counters are there from the start";
  EXPECT_EQ(Value(shown, "mt_checkpoint_failures_total", ""), 0);
  EXPECT_EQ(shown.Count("mt_train_loss"), 0) << "nobody has reported one";
  EXPECT_EQ(Value(shown, "mt_job_step_limit_seconds", ""), 600) << "the first steps";
  Report(worker, FullSteps(job, 1, 10));
  v1::WorkerMessage failed;
  failed.mutable_job_report()->set_job_uid(job.uid());
  failed.mutable_job_report()->set_epoch(job.epoch());
  failed.mutable_job_report()->set_checkpoint_failed("No space left on device");
  Report(worker, failed);
  Report(worker, failed);
  ReportEvaluation(worker, job);
  shown = Scrape();
  EXPECT_EQ(Value(shown, "mt_validation_loss", ""), 3);
  EXPECT_EQ(shown.Count("mt_validation_bpb"), 0) << "the tokenizer may not know bytes";
  ReportEvaluation(worker, job, 20.5, 1.25);
  shown = Scrape();
  EXPECT_EQ(Value(shown, "mt_validation_perplexity", ""), 20.5);
  EXPECT_EQ(Value(shown, "mt_validation_bpb", ""), 1.25);
  ReportEvaluation(worker, job);
  shown = Scrape();
  EXPECT_TRUE(std::isnan(Value(shown, "mt_validation_perplexity", ""))) << "not the one before's";
  EXPECT_TRUE(std::isnan(Value(shown, "mt_validation_bpb", "")));
  EXPECT_EQ(Value(shown, "mt_job_step", ""), 10);
  EXPECT_EQ(Value(shown, "mt_train_loss", ""), 2.5);
  EXPECT_EQ(Value(shown, "mt_job_tokens_total", ""), 1'000);
  EXPECT_EQ(Value(shown, "mt_skipped_steps_total", "reason=\"overflow\""), 1);
  EXPECT_EQ(Value(shown, "mt_model_flops_total", ""), 1e10);
  EXPECT_EQ(Value(shown, "mt_model_flops_per_second", ""), 5e8);
  EXPECT_EQ(Value(shown, "mt_job_goodput_seconds_total", ""), 20);
  EXPECT_EQ(Value(shown, "mt_checkpoint_failures_total", ""), 2) << "the same error twice";
  EXPECT_EQ(Value(shown, "mt_job_step_limit_seconds", ""), 60) << "5 x p99 is less";
  EXPECT_EQ(Value(shown, "mt_job_ranks", "state=\"live\""), 1);
}

// Without a duration there is no rate.
TEST_F(MeterTest, WhatAStepDoesNotReportHasNoSeries) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  v1::WorkerMessage message = StepsMessage(job, 1, 1);
  v1::StepRecord& step = *message.mutable_steps()->mutable_steps(0);
  step.set_step_seconds(0);
  step.set_model_flops(1e9);
  Report(worker, message);
  const Exposition shown = Scrape();
  for (const report::StepMetric& metric : report::StepMetrics()) {
    if (!metric.declared().has_gauge()) continue;
    const v1::Metric::Gauge& gauge = metric.declared().gauge();
    const bool expected = metric.IsReported(step) && !gauge.per_second();
    EXPECT_EQ(shown.Count(gauge.name() + "{"), expected ? 1 : 0) << gauge.name();
  }
  EXPECT_EQ(shown.Count("mt_job_step_seconds{"), 1);
}

TEST_F(MeterTest, TimeIsLostByCause) {
  Submit(TinyJob("demo", 1));
  Scrape();
  for (int i = 0; i < 5; ++i) Scrape();
  Worker worker = NewWorker("n1", 1);
  const Exposition shown = Scrape();
  EXPECT_EQ(Value(shown, "mt_job_state", "state=\"ADMITTED\""), 1);
  EXPECT_NEAR(Value(shown, "mt_job_badput_seconds_total", "cause=\"queue\""), 6, 0.01);
  EXPECT_EQ(shown.Value("mt_queue_wait_seconds_count"), 1);
  EXPECT_GE(shown.Value("mt_queue_wait_seconds_sum"), 5);
  EXPECT_EQ(shown.Value("mt_queue_depth"), 0);
}

TEST_F(MeterTest, SeriesOfAnEndedJobGoAfterFiveMinutes) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, FullSteps(job, 1, 3));
  Report(worker, EndedMessage(job, 3, /*completed=*/true));
  Gone(worker, job);
  EXPECT_EQ(Value(Scrape(), "mt_job_state", "state=\"SUCCEEDED\""), 1);
  Pass(std::chrono::seconds(290));
  EXPECT_GT(Scrape().Count("mt_job=\"demo\""), 40);
  Pass(std::chrono::seconds(15));
  EXPECT_EQ(Scrape().Count("mt_job=\"demo\""), 0);
}

TEST_F(MeterTest, ANewJobOfTheSameNameTakesTheSeriesOver) {
  const v1::Job first = Submit(TinyJob("demo", 1));
  ASSERT_TRUE(Cancel(first.uid(), false).ok());
  EXPECT_EQ(Value(Scrape(), "mt_job_state", "state=\"CANCELLED\""), 1);
  const v1::Job second = Submit(TinyJob("demo", 1));
  Scrape();
  Pass(std::chrono::minutes(6));
  const Exposition shown = Scrape();
  EXPECT_EQ(Value(shown, "mt_job_state", "state=\"QUEUED\""), 1);
  EXPECT_EQ(shown.Count(first.uid()), 0);
  EXPECT_EQ(shown.Count(second.uid()), 1);
  EXPECT_EQ(shown.Value("mt_queue_depth"), 1);
}

TEST_F(MeterTest, NodesAndTheirSlots) {
  Worker worker = NewWorker("n1", 4);
  StartRunning(worker, "demo", 1);
  Exposition shown = Scrape();
  EXPECT_EQ(shown.Value("mt_workers{state=\"ready\"}"), 1);
  EXPECT_EQ(shown.Value("mt_slots{device=\"cpu\",state=\"used\"}"), 1);
  EXPECT_EQ(shown.Value("mt_slots{device=\"cpu\",state=\"free\"}"), 3);
  EXPECT_TRUE(shown.Has("mt_worker_last_heartbeat_timestamp_seconds{node=\"n1\"}"));
  Pass(std::chrono::seconds(31));
  shown = Scrape();
  EXPECT_EQ(shown.Value("mt_workers{state=\"lost\"}"), 1);
  EXPECT_EQ(shown.Value("mt_slots{device=\"cpu\",state=\"unreachable\"}"), 4);
  EXPECT_EQ(shown.Value("mt_lease_expirations_total"), 1);
}

TEST_F(MeterTest, TheCoordinatorsOwnSeriesFitTheBudget) {
  for (int i = 0; i < 1'000; ++i) NewWorker("node-" + std::to_string(i), 1);
  // Those of gRPC come on top: 878 (coordinator_test.cc).
  EXPECT_LE(Scrape().Count(), 2'000 - 878);
}

TEST_F(MeterTest, TheRunOfAJobIsOneSeries) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  EXPECT_EQ(Scrape().Count("mt_job_run_info{"), 0) << "nobody has told one";
  ReportRun(worker, job, "run-a");
  EXPECT_EQ(Value(Scrape(), "mt_job_run_info", "run=\"run-a\""), 1);
  ReportRun(worker, job, "run-b");
  const Exposition shown = Scrape();
  EXPECT_EQ(Value(shown, "mt_job_run_info", "run=\"run-b\""), 1);
  EXPECT_EQ(shown.Count("mt_job_run_info{"), 1);
}

}  // namespace
}  // namespace mt::daemon
