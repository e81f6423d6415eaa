// Training in 16 bits: as good as in 32, equal in every layout up to rounding, and steps whose
// gradients overflow are skipped by all ranks.
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "tests/paths.h"
#include "tests/worker/parity/curves.h"
#include "tests/worker/parity/layouts.h"

namespace mt::parity {
namespace {

using megatrain::v1::JobSpec;
using megatrain::v1::StepRecord;
using train::RankOutcome;
using train::RunJob;
using train::TrainArgs;

// Tensor, pipeline and data parallel at once: rank 5 is none of the first of any axis but data's.
constexpr Layout kCube = {
    .family = Family::kGpt2, .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero_stage = 1};

// The job of the quick start, on one rank and text that the test makes. The scale begins where
// gradients of this size are: from 2^32, the default, fp16 skips some 16 of the 200 steps on the
// way down, and has then learned so much less.
JobSpec QuickStart(const std::string& precision) {
  std::vector<std::string> fields = {"training.precision=" + precision,
                                     "training.train_iters=200",
                                     "training.eval.every_iters=200",
                                     "training.eval.iters=10",
                                     "parallel.tensor=1",
                                     "parallel.pipeline=1",
                                     "parallel.data=1",
                                     "data.path=[text]",
                                     "checkpoint.directory=none",
                                     "checkpoint.every_iters=0",
                                     "placement.threads_per_rank=1"};
  if (precision == "fp16") fields.emplace_back("training.loss_scale.initial=65536");
  JobSpec job;
  spec::Faults faults =
      spec::LoadJobFile(MT_SOURCE_DIR "/deploy/examples/quickstart.yaml", fields, {}, &job);
  if (faults.empty()) faults = spec::ResolveForSlots({}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

TEST(Precision, SixteenBitsEndWithinOnePercentOfSingle) {
  const train::TempDir dir;
  ASSERT_TRUE(base::MakeDirs(base::JoinPath(dir.path(), "data")).ok());
  train::WriteTokens(base::JoinPath(dir.path(), "data/text"), 8000);
  std::map<std::string, train::Observed> runs = {{"fp32", {}}, {"bf16", {}}, {"fp16", {}}};
  std::vector<std::thread> threads;
  for (auto& [precision, seen] : runs) {
    threads.emplace_back([&dir, &precision = precision, &seen = seen] {
      RankOutcome outcome = std::move(RunJob(QuickStart(precision), {.root = dir.path()})[0]);
      EXPECT_TRUE(outcome.result.completed) << precision << ": " << outcome.result.status;
      seen = std::move(outcome.seen);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const train::Observed& single = runs["fp32"];
  ASSERT_EQ(single.steps.size(), 200U);
  EXPECT_LT(single.steps.back().loss(), single.steps.front().loss() / 2) << "it learns";
  for (const char* precision : {"bf16", "fp16"}) {
    const train::Observed& half = runs[precision];
    ASSERT_EQ(half.steps.size(), 200U) << precision;
    EXPECT_NE(half.steps[1].loss(), single.steps[1].loss()) << "really another precision";
    const double want = single.steps.back().loss();
    EXPECT_NEAR(half.steps.back().loss(), want, 0.01 * want) << precision;
    EXPECT_NEAR(half.evals.back().loss, single.evals.back().loss, 0.01 * single.evals.back().loss)
        << precision;
  }
}

TEST(Precision, Bfloat16InThreeAxesStaysNearOneRankOverFiftySteps) {
  Runner runner;
  const std::vector<std::string> steps = {"training.train_iters=50"};
  const Curve alone = runner.RunAlone(kCube, "bf16", steps);
  ASSERT_EQ(alone.steps.size(), 50U);
  const Curve cube = runner.Run(kCube, "bf16", steps);
  EXPECT_TRUE(runner.Run(kCube, "bf16", steps) == cube) << "twice the same bits";
  ASSERT_EQ(cube.steps.size(), 50U);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_NEAR(cube.steps[i].loss, alone.steps[i].loss, 1e-2 * alone.steps[i].loss)
        << "step " << i + 1;
  }
}

class OverflowTest : public testing::Test {
 protected:
  // Megatron-LM's own sequence: start 2^16, window 4, hysteresis 2.
  static constexpr std::array<int, 19> kOverflows = {1, 0, 1, 1, 0, 0, 0, 0, 1, 0,
                                                     1, 0, 0, 0, 0, 0, 0, 0, 0};
  static constexpr std::array<double, 19> kScales = {
      65536, 65536, 32768, 16384, 16384, 16384, 16384, 32768, 32768, 32768,
      16384, 16384, 16384, 16384, 32768, 32768, 32768, 32768, 65536};

  // One rank finds that its gradients have overflowed, in steps chosen beforehand.
  std::vector<RankOutcome> Run(const Layout& layout, int rank_that_overflows) {
    std::vector<std::string> fields = OverridesOf(layout);
    fields.insert(fields.end(),
                  {"training.precision=fp16", "training.train_iters=19",
                   "training.loss_scale.initial=65536", "training.loss_scale.window=4",
                   "training.loss_scale.hysteresis=2", "training.eval.every_iters=0"});
    return RunJob(Runner::JobOf(layout.family, fields),
                  {.root = runner_.root(), .adjust = [=](int rank, TrainArgs* args) {
                     if (rank != rank_that_overflows) return;
                     args->end_of_step = [](int64_t step, engine::StepVector* mine) {
                       if (step > 0 && kOverflows[static_cast<size_t>(step - 1)] != 0) {
                         mine->sums.nonfinite += 1;
                       }
                     };
                   }});
  }

  Runner runner_;
};

TEST_F(OverflowTest, SkipsTheStepOnAllRanksAndFollowsTheScaleSequence) {
  const std::vector<RankOutcome> calm = Run(kCube, -1);
  const std::vector<RankOutcome> ranks = Run(kCube, 5);
  for (const RankOutcome& rank : ranks) {
    EXPECT_TRUE(rank.result.completed) << rank.result.status;
    EXPECT_EQ(rank.result.last_step, 19);
  }
  const std::vector<StepRecord>& steps = ranks[0].seen.steps;
  ASSERT_EQ(steps.size(), 19U);
  int64_t skipped = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(steps[i].step());
    EXPECT_EQ(steps[i].skipped(), kOverflows[i] != 0);
    EXPECT_EQ(steps[i].loss_scale(), kScales[i]);
    skipped += kOverflows[i];
    EXPECT_EQ(steps[i].skipped_steps(), skipped);
    EXPECT_EQ(steps[i].consumed_samples(), static_cast<int64_t>(i + 1) * 16) << "samples move on";
    // The n-th update taken has the n-th learning rate, however many were skipped between.
    if (!steps[i].skipped()) {
      const size_t taken = i - static_cast<size_t>(skipped);
      EXPECT_EQ(steps[i].learning_rate(), calm[0].seen.steps[taken].learning_rate());
    } else if (i > 0) {
      EXPECT_EQ(steps[i].learning_rate(), steps[i - 1].learning_rate()) << "it does not move";
    }
  }
  EXPECT_EQ(skipped, 5);
  EXPECT_LT(steps.back().loss(), steps.front().loss());
}

TEST_F(OverflowTest, WhereTheOverflowIsFoundChangesNothing) {
  const std::vector<RankOutcome> last = Run(kCube, 7);
  const std::vector<RankOutcome> first = Run(kCube, 0);
  train::ExpectEqualCurve(last[0].seen.steps, first[0].seen.steps);
}

TEST_F(OverflowTest, ARealOverflowHalvesTheScaleUntilStepsAreTaken) {
  // 2^40 times the loss is far beyond the largest number of the type.
  const auto job = Runner::JobOf(
      Family::kGpt2, {"training.precision=fp16", "training.train_iters=40", "parallel.tensor=2",
                      "parallel.pipeline=2", "training.loss_scale.initial=1099511627776",
                      "training.loss_scale.hysteresis=1", "training.eval.every_iters=0"});
  const std::vector<RankOutcome> ranks = RunJob(job, {.root = runner_.root()});
  const std::vector<StepRecord>& steps = ranks[0].seen.steps;
  ASSERT_EQ(steps.size(), 40U);
  EXPECT_TRUE(steps.front().skipped());
  EXPECT_FALSE(steps.back().skipped());
  EXPECT_GT(steps.back().skipped_steps(), 5);
  EXPECT_EQ(steps.back().loss_scale(),
            std::ldexp(1.0, 40 - static_cast<int>(steps.back().skipped_steps())));
  EXPECT_LT(steps.back().loss(), steps.front().loss());
}

}  // namespace
}  // namespace mt::parity
