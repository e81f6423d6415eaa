// A benchmark on the CPU backend: its report against the training records, FLOP counts against
// goldens, the logged calls of a step against the model's, GPU readings through a fake driver
// library.
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "kernels/cpu/cpu_backend.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/types.pb.h"
#include "tests/worker/bench/bench_rig.h"
#include "worker/bench/bench_run.h"
#include "worker/bench/device_gauge.h"
#include "worker/bench/device_rates.h"
#include "worker/bench/step_samples.h"

namespace mt::bench {
namespace {

namespace v1 = megatrain::v1;

TEST(BenchRun, ReportsTheTrainersOwnSteps) {
  const v1::JobSpec job = BenchJob({"bench.warmup=3", "bench.steps=8"});
  const Seen seen = RunBench(job);
  ASSERT_EQ(seen.steps.size(), 11U);
  ASSERT_EQ(seen.reports.size(), 1U);
  const v1::BenchReport& report = seen.reports[0];
  std::vector<double> seconds;
  double forward = 0;
  for (const v1::StepRecord& record : seen.steps) {
    if (record.step() <= 3) continue;
    seconds.push_back(record.step_seconds());
    forward += record.phase_seconds().at("forward");
  }
  EXPECT_EQ(report.steps(), 8);
  EXPECT_EQ(report.warmup_steps(), 3);
  EXPECT_EQ(report.median_step_seconds(), Median(seconds));
  EXPECT_EQ(report.p95_step_seconds(), *std::max_element(seconds.begin(), seconds.end()));
  EXPECT_EQ(report.tokens_per_step(), seen.steps[0].tokens());
  EXPECT_EQ(report.tokens_per_second(),
            static_cast<double>(seen.steps[0].tokens()) / report.median_step_seconds());
  EXPECT_EQ(report.model_flops(), seen.steps[0].model_flops());
  EXPECT_EQ(report.model_flops_full(), seen.steps[0].model_flops_full());
  EXPECT_DOUBLE_EQ(report.tflops_per_slot(),
                   report.model_flops() / report.median_step_seconds() * 1e-12);
  EXPECT_DOUBLE_EQ(report.phase_seconds().at("forward"), forward / 8);
  EXPECT_EQ(report.first_loss(), seen.steps[3].loss());
  EXPECT_EQ(report.last_loss(), seen.steps.back().loss());
  EXPECT_EQ(report.memory_bytes().at("weights"), seen.steps[0].memory_bytes().at("weights"));
  EXPECT_EQ(report.product().size(), 1024);
  EXPECT_GT(report.product().tflops(), 0);
  EXPECT_DOUBLE_EQ(report.ratio_to_product() * report.product().tflops(), report.tflops_per_slot());
  EXPECT_EQ(report.mfu(), 0) << "no maker states a peak of a CPU slot";
  EXPECT_FALSE(report.has_readings());
  EXPECT_TRUE(report.kernels().empty());
  EXPECT_TRUE(report.communication().empty()) << "one rank";
  EXPECT_FALSE(seen.left_before_report);
  EXPECT_EQ(seen.states.back(), train::TrainState::kExiting);
}

TEST(BenchRun, AStoppedRunHasNoReport) {
  const Seen seen = RunBench(BenchJob({"bench.warmup=1", "bench.steps=2"}), /*stopped=*/true);
  EXPECT_TRUE(seen.reports.empty());
  EXPECT_EQ(seen.states.back(), train::TrainState::kExiting);
}

// What two layers and a head call, forward and backward, per microbatch (worker/model/README.md),
// and what a step calls once.
TEST(BenchRun, LogsTheCallsThatTheModelMakes) {
  const v1::JobSpec job = BenchJob(
      {"bench.warmup=1", "bench.steps=2", "bench.kernels=true", "model.tie_embeddings=true"});
  const Seen seen = RunBench(job);
  ASSERT_EQ(seen.reports.size(), 1U);
  const v1::BenchReport& report = seen.reports[0];
  std::map<std::string, int64_t> calls;
  double sum = 0;
  for (const v1::KernelTime& kernel : report.kernels()) {
    calls[kernel.call().substr(0, kernel.call().find_first_of(" "))] += kernel.calls();
    EXPECT_GT(kernel.seconds(), 0) << kernel.call();
    sum += static_cast<double>(kernel.calls()) * kernel.seconds();
  }
  constexpr int64_t kLayers = 2, kMicrobatches = 3;
  const auto per_layer = [](int64_t n) { return n * kLayers * kMicrobatches; };
  EXPECT_EQ(calls["attention.Forward"], per_layer(1));
  EXPECT_EQ(calls["attention.Grad"], per_layer(1));
  EXPECT_EQ(calls["linear.ForwardAct"], per_layer(1));
  EXPECT_EQ(calls["linear.InputGradAct"], per_layer(1));
  // qkv, projection, second of the block; and the head.
  EXPECT_EQ(calls["linear.Forward"], per_layer(3) + kMicrobatches);
  EXPECT_EQ(calls["linear.InputGrad"], per_layer(3) + kMicrobatches);
  EXPECT_EQ(calls["linear.WeightGrad"], per_layer(4) + kMicrobatches);
  EXPECT_EQ(calls["add_norm.AddNorm"], per_layer(2) + kMicrobatches);
  EXPECT_EQ(calls["loss.StatsFinish"], kMicrobatches);
  EXPECT_EQ(calls["embedding.Gather"], kMicrobatches);
  EXPECT_EQ(calls["embedding.ScatterGrad"], kMicrobatches);
  EXPECT_EQ(calls["update.Advance"], 1);
  EXPECT_GE(calls["update.AdamW"], 2);  // with and without decay
  EXPECT_DOUBLE_EQ(report.kernel_seconds(), sum);
  EXPECT_DOUBLE_EQ(report.ratio_to_kernels(), report.median_step_seconds() / sum);
}

// The report's communication by axis, which must have every axis once and add up.
std::map<std::string, v1::AxisTime> CommunicationIn(const Seen& seen) {
  std::map<std::string, v1::AxisTime> axes;
  EXPECT_EQ(seen.reports.size(), 1U);
  if (seen.reports.size() != 1) return axes;
  for (const v1::AxisTime& time : seen.reports[0].communication()) {
    EXPECT_TRUE(axes.emplace(time.axis(), time).second) << time.axis();
    EXPECT_GE(time.hidden_seconds(), 0);
    EXPECT_GE(time.exposed_seconds(), 0);
    EXPECT_DOUBLE_EQ(time.hidden_seconds() + time.exposed_seconds(), time.seconds());
    EXPECT_EQ(time.calls() > 0, time.seconds() > 0) << time.axis();
  }
  for (const char* axis : {"tp", "pp", "dp", "world"}) EXPECT_EQ(axes.count(axis), 1U) << axis;
  EXPECT_EQ(axes.size(), 4U);
  return axes;
}

TEST(BenchRun, ReplicasCommunicateAlongTheirAxisAlone) {
  for (const char* overlap : {"false", "true"}) {
    const std::string is = std::string("=") + overlap;
    const Seen seen = RunBench(
        BenchJob({"bench.warmup=2", "bench.steps=4", "parallel.data=2", "parallel.zero_stage=1",
                  "parallel.bucket_size=1024", "training.global_batch_size=8",
                  "parallel.overlap.grad_reduce" + is, "parallel.overlap.param_gather" + is}));
    auto axes = CommunicationIn(seen);
    EXPECT_GE(axes["dp"].calls(), 4) << "of each of some buckets a sum and a gather";
    EXPECT_EQ(axes["tp"].calls() + axes["pp"].calls(), 0);
    EXPECT_EQ(axes["world"].calls(), 1);
    EXPECT_EQ(axes["world"].hidden_seconds(), 0);
    if (is == "=false") {
      EXPECT_EQ(axes["dp"].hidden_seconds(), 0);
      EXPECT_EQ(axes["dp"].calls(), std::floor(axes["dp"].calls()));
    }
    // The training thread did all that is exposed within the measured steps, three of which are
    // timed.
    double all = 0;
    for (const v1::StepRecord& record : seen.steps)
      all += record.step() > 2 ? record.step_seconds() : 0;
    EXPECT_LE(3 * (axes["dp"].exposed_seconds() + axes["world"].exposed_seconds()), all);
  }
}

TEST(BenchRun, EveryAxisOfACubeIsTimed) {
  const Seen seen = RunBench(
      BenchJob({"bench.warmup=1", "bench.steps=4", "parallel.tensor=2", "parallel.pipeline=2",
                "parallel.data=2", "training.global_batch_size=8", "model.tie_embeddings=true"}));
  auto axes = CommunicationIn(seen);
  EXPECT_GE(axes["tp"].calls(), 8) << "four of each of two microbatches, in one layer";
  EXPECT_EQ(axes["tp"].hidden_seconds(), 0) << "on CPU slots layers communicate inline";
  EXPECT_EQ(axes["pp"].calls(), 3) << "a parcel of each microbatch, and the tied table";
  EXPECT_GT(axes["pp"].exposed_seconds(), 0) << "at least the table";
  EXPECT_GT(axes["dp"].calls(), 0);
  EXPECT_EQ(axes["world"].calls(), 1);
}

TEST(StepSamples, TheHostsTimeIsTheLeastAfterTheFirstStep) {
  StepSamples samples;
  const v1::JobSpec job = BenchJob({});
  int64_t step = 0;
  for (const double launch : {0.001, 0.3, 0.004, 0.2, 0.25}) {
    ++step;
    v1::StepRecord record;
    record.set_step(step);
    record.set_step_seconds(0.25);
    record.set_launch_seconds(launch);
    samples.Add(record, step > 3);
  }
  v1::BenchReport report;
  samples.Fill(job, &report);
  EXPECT_EQ(report.launch_seconds(), 0.004);
  EXPECT_EQ(report.steps(), 2);
}

v1::StepRecord Step(double seconds) {
  v1::StepRecord record;
  record.set_step(1);
  record.set_tokens(8 * 1024);
  record.set_step_seconds(seconds);
  return record;
}

TEST(StepSamples, CountsOfGpt2AgreeWithTheGoldens) {
  v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(
      "{name: g, kind: bench, model: {preset: gpt2-124m}, data: {mock: true}, "
      "training: {micro_batch_size: 8, precision: bf16}, optimizer: {lr: 1e-4}, "
      "placement: {device: cpu, slots: 1}}",
      {}, {}, &job);
  ASSERT_EQ(spec::FormatFaults(faults), "");
  StepSamples samples;
  for (const double seconds : {2.0, 1.0, 4.0, 3.0}) samples.Add(Step(seconds), /*measured=*/true);
  v1::BenchReport report;
  samples.Fill(job, &report);
  EXPECT_EQ(report.megatron_flops(), 8 * 817'184'636'928.0);  // with the padded 50304
  const double less = 6.0 * 8 * 1024 * 768 * (50304 - 50257);
  EXPECT_EQ(report.model_flops(), report.megatron_flops() - less);
  EXPECT_EQ(report.model_flops_full() - report.model_flops(), 6.0 * 12 * 768 * 1024 * 1024 * 8);
  EXPECT_EQ(report.median_step_seconds(), 2.5);
  EXPECT_EQ(report.p95_step_seconds(), 4);
  EXPECT_EQ(report.mean_step_seconds(), 2.5);
  EXPECT_EQ(report.tokens_per_second(), 8 * 1024 / 2.5);
  EXPECT_DOUBLE_EQ(report.megatron_tflops_per_slot(), 8 * 0.817184636928 / 2.5);
  EXPECT_EQ(report.precision(), "BF16");
  EXPECT_EQ(report.parameters(), 124'439'808);
}

TEST(StepSamples, QuantilesAreByNearestRank) {
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(Quantile(hundred, 0.95), 95);
  EXPECT_EQ(Quantile(hundred, 1), 100);
  EXPECT_EQ(Quantile({7}, 0.95), 7);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
}

TEST(DeviceRates, PeaksAreThoseThatTheMakerStates) {
  const std::string h200 = "cuda 0, NVIDIA H200, sm_90, 132 SMs, 139.8 GiB";
  EXPECT_EQ(StatedPeakFlops(h200, kernels::DType::kBf16), 989.4e12);
  EXPECT_EQ(StatedPeakFlops(h200, kernels::DType::kF32), 67e12);
  EXPECT_EQ(StatedPeakFlops("cuda 1, NVIDIA H100 80GB HBM3, sm_90", kernels::DType::kF16),
            989.4e12);
  EXPECT_LT(StatedPeakFlops("cuda 0, NVIDIA H100 PCIe, sm_90", kernels::DType::kBf16), 989e12);
  EXPECT_EQ(StatedPeakFlops("cpu, 2 threads, OpenBLAS Haswell", kernels::DType::kF32), 0);
}

TEST(DeviceGauge, ReadsWhileItRuns) {
  auto gauge = DeviceGauge::Create("GPU-aaaa", MT_FAKE_DRIVER);
  ASSERT_TRUE(gauge.ok()) << gauge.status();
  v1::DeviceReadings readings;
  EXPECT_FALSE((*gauge)->Fill(&readings)) << "nothing was read yet";
  (*gauge)->Start();
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  (*gauge)->Stop();
  ASSERT_TRUE((*gauge)->Fill(&readings));
  EXPECT_GE(readings.samples(), 1);
  EXPECT_EQ(readings.median_sm_clock_mhz(), 1755);
  EXPECT_EQ(readings.max_sm_clock_mhz(), 1980);
  EXPECT_EQ(readings.median_power_watts(), 412.5);
  EXPECT_EQ(readings.power_limit_watts(), 700);
  EXPECT_EQ(readings.max_temperature_celsius(), 41);
  EXPECT_EQ(readings.power_capped(), 1);
  EXPECT_EQ(readings.thermally_slowed(), 0);
  EXPECT_FALSE(DeviceGauge::Create("GPU-cccc", MT_FAKE_DRIVER).ok());
  EXPECT_FALSE(DeviceGauge::Create("", "libmt-no-such-driver.so.1").ok());
}

}  // namespace
}  // namespace mt::bench
