// Steps of real sizes on a GPU, eager and recorded: both learn alike; the table of what they take
// (docs/benchmarks.md) is printed, not judged. Skipped, saying why, without a GPU.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <utility>

#include "kernels/cuda/module.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

using megatrain::v1::JobSpec;

using std::chrono_literals::operator""ms;

constexpr size_t kWarmUp = 10;

JobSpec MockJob(const std::vector<std::string>& overrides) {
  constexpr const char* kText = R"(
name: steps
model: {preset: gpt2-124m, hidden_dropout: 0, attention_dropout: 0}
data: {mock: true}
training: {micro_batch_size: 32, train_iters: 1, precision: bf16}
optimizer: {lr: 1e-4, clip_grad: 1.0}
checkpoint: {directory: none}
placement: {device: cpu, threads_per_rank: 1}
)";
  return JobFromText(kText, overrides);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What the trainer tells, and how long its thread takes to enqueue a step: from the poll for a
// command, which opens it, to the progress, which closes it.
class StepWatch final : public TrainObserver, public CommandSource {
 public:
  std::optional<Command> Poll() override {
    begin_ = std::chrono::steady_clock::now();
    return std::nullopt;
  }
  void OnProgress(int64_t /*step*/) override {
    const auto now = std::chrono::steady_clock::now();
    host_ms_.push_back(std::chrono::duration<double, std::milli>(now - begin_).count());
  }
  void OnStep(const StepRecord& record) override { steps.push_back(record); }
  double MedianHostMs() const { return Median({host_ms_.begin() + kWarmUp, host_ms_.end()}); }
  double MedianMs(report::StepPhase phase) const {
    std::vector<double> ms;
    for (size_t i = kWarmUp; i < steps.size(); ++i) {
      ms.push_back(1e3 * SecondsIn(steps[i], phase));
    }
    return Median(ms);
  }
  double MedianStepMs() const {
    std::vector<double> ms;
    for (size_t i = kWarmUp; i < steps.size(); ++i) ms.push_back(1e3 * steps[i].step_seconds());
    return Median(ms);
  }

  std::vector<StepRecord> steps;

 private:
  std::chrono::steady_clock::time_point begin_;
  std::vector<double> host_ms_;
};

struct Size {
  const char* name;
  int64_t steps;
  // The host's time is taken with this pause before each step, in which the device runs dry: ahead
  // of it a host waits where 1,024 launches are under way.
  std::chrono::milliseconds pause;
  std::vector<std::string> overrides;
};

class StepsTest : public TrainTest, public ::testing::WithParamInterface<Size> {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    auto gpu = kernels::cuda::LoadCudaBackend({});
    if (!gpu.ok()) GTEST_SKIP() << gpu.status();
    gpu_ = std::move(gpu).value();
  }
  StepWatch Watch(bool recorded, int64_t steps, std::chrono::milliseconds pause) {
    std::vector<std::string> overrides = GetParam().overrides;
    overrides.push_back("training.train_iters=" + std::to_string(steps));
    overrides.push_back(recorded ? "training.recordings=true" : "training.recordings=false");
    StepWatch watch;
    const auto outcomes =
        RunJob(MockJob(overrides),
               {.root = dir_.path(), .commands = &watch, .adjust = [&](int, TrainArgs* args) {
                  args->backend = gpu_.get();
                  args->observer = &watch;
                  args->host_delay = pause;
                }});
    ExpectClean(outcomes, steps);
    return watch;
  }
  // The steps of a run, whose times it prints.
  std::vector<StepRecord> Measured(bool recorded) {
    const StepWatch watch = Watch(recorded, GetParam().steps, {});
    const StepWatch idle = Watch(recorded, kWarmUp + 5, GetParam().pause);
    Print(recorded ? "recorded" : "eager", watch, idle.MedianHostMs());
    return watch.steps;
  }
  static void Print(const char* how, const StepWatch& watch, double host_ms) {
    std::printf("%-22s %-8s step %8.3f ms, host %7.3f ms |", GetParam().name, how,
                watch.MedianStepMs(), host_ms);
    for (const report::StepPhase phase :
         {report::StepPhase::kData, report::StepPhase::kForward, report::StepPhase::kBackward,
          report::StepPhase::kDpComm, report::StepPhase::kOptimizer, report::StepPhase::kOther}) {
      std::printf(" %s %.3f", std::string(Name(phase)).c_str(), watch.MedianMs(phase));
    }
    std::printf("\n");
  }

  std::unique_ptr<kernels::Backend> gpu_;
};

TEST_P(StepsTest, EagerAndRecordedLearnAlike) {
  const std::vector<StepRecord> eager = Measured(false);
  const std::vector<StepRecord> recorded = Measured(true);
  ASSERT_EQ(recorded.size(), eager.size());
  for (size_t i = 0; i < eager.size(); ++i) {
    // cuDNN's backward adds up dq in any order.
    EXPECT_NEAR(recorded[i].loss(), eager[i].loss(), 0.02) << "step " << i + 1;
  }
  EXPECT_LT(eager.back().loss(), eager.front().loss());
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, StepsTest,
    ::testing::Values(
        Size{"gpt2-124m b32", 40, 100ms, {}},
        Size{"gpt2-124m b4", 60, 30ms, {"training.micro_batch_size=4"}},
        Size{"gpt2-124m b32 x 8", 20, 500ms, {"training.global_batch_size=256"}},
        Size{"gpt3-1.3b b8", 25, 300ms, {"model.preset=gpt3-1.3b", "training.micro_batch_size=8"}}),
    [](const auto& of) {
      std::string name = of.param.name;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

}  // namespace
}  // namespace mt::train
