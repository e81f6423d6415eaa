// A step on a GPU: what the device decides alone, how far the host runs ahead, and that nothing is
// chosen within a step.
#include <array>
#include <utility>

#include "kernels/cuda/module.h"
#include "kernels/ops/tuning.h"
#include "tests/worker/train/gpu_rig.h"
#include "worker/data/loader.h"
#include "worker/engine/engine.h"
#include "worker/train/run_data.h"

namespace mt::train {
namespace {

class GpuOverflowTest : public GpuTrainTest {};

TEST_F(GpuOverflowTest, FollowsMegatronsScaleSequence) {
  // docs/design/megatron-compat.md#loss-scale: start 2^16, window 4, hysteresis 2.
  constexpr std::array<int, 19> kOverflows = {1, 0, 1, 1, 0, 0, 0, 0, 1, 0,
                                              1, 0, 0, 0, 0, 0, 0, 0, 0};
  constexpr std::array<double, 19> kScales = {65536, 65536, 32768, 16384, 16384, 16384, 16384,
                                              32768, 32768, 32768, 16384, 16384, 16384, 16384,
                                              32768, 32768, 32768, 32768, 65536};
  adjust_ = [&](TrainArgs* args) {
    args->end_of_step = [&](int64_t step, engine::StepVector* mine) {
      if (step > 0 && kOverflows[static_cast<size_t>(step - 1)] != 0) mine->sums.nonfinite += 1;
    };
  };
  const RankOutcome run = Run(
      Where::kGpu, kGptLike,
      {"training.precision=fp16", "training.train_iters=19", "training.loss_scale.initial=65536",
       "training.loss_scale.window=4", "training.loss_scale.hysteresis=2"});
  ASSERT_EQ(run.seen.steps.size(), 19U);
  for (size_t i = 0; i < 19; ++i) {
    EXPECT_EQ(run.seen.steps[i].loss_scale(), kScales[i]) << "step " << i + 1;
    EXPECT_EQ(run.seen.steps[i].skipped(), kOverflows[i] != 0) << "step " << i + 1;
  }
}

TEST_F(GpuOverflowTest, AScaleThatIsTooLargeFallsByItself) {
  constexpr int kWindow = 6;
  const RankOutcome run =
      Run(Where::kGpu, kGptLike,
          {"training.precision=fp16", "training.train_iters=60",
           "training.loss_scale.initial=4294967296", "training.loss_scale.window=6"});
  ASSERT_EQ(run.seen.steps.size(), 60U);
  double scale = 4294967296;
  int hysteresis = 2, clean = 0, skipped = 0;
  for (const StepRecord& step : run.seen.steps) {
    if (step.skipped()) {
      ++skipped;
      clean = 0;
      if (--hysteresis <= 0) scale /= 2;
    } else if (++clean == kWindow) {
      clean = 0;
      hysteresis = 2;
      scale *= 2;
    }
    EXPECT_EQ(step.loss_scale(), scale) << "step " << step.step();
  }
  EXPECT_GT(skipped, 5);
  EXPECT_LT(skipped, 40);
  EXPECT_LT(run.seen.steps.back().loss(), 0.9 * run.seen.steps.front().loss()) << "it learns";
}

// An engine and its data, without a trainer.
class GpuEngineTest : public GpuTrainTest {
 protected:
  void Build(const megatrain::v1::JobSpec& job) {
    data_ = OpenRunData(
                {.job = &job, .course = spec::CourseOf(job), .data_root = dir_.path() + "/data"})
                .value();
    groups_ = parallel::RankGroups::CreateForJob(job, 0, nullptr, nullptr).value();
    auto plan =
        engine::EnginePlan::Create({.config = engine::EngineConfigFromJob(job, groups_->axes()),
                                    .backend = &gpu(),
                                    .groups = groups_.get(),
                                    .clock = base::Clock::Real()});
    engine_ = engine::Engine::Create(std::move(plan).value()).value();
    engine_->Initialize(job.training().seed());
    loader_ = data::Loader::Create({.dataset = data_.train,
                                    .micro_batch_size = job.training().micro_batch_size(),
                                    .prefetch = 8,
                                    .threads = 2})
                  .value();
  }

  RunData data_;
  std::unique_ptr<parallel::RankGroups> groups_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<data::Loader> loader_;
};

// Each step overflows, so that a decision is due on the device: 2 x 16,384 tokens, some 20 ms of
// work that takes a few to enqueue.
TEST_F(GpuEngineTest, AStepIsEnqueuedWithoutWaitingForTheDevice) {
  Build(GpuJob(Where::kGpu, "heads: 16",
               {"model.hidden_size=1024", "model.seq_length=1024", "training.micro_batch_size=16",
                "training.global_batch_size=32", "training.precision=fp16",
                "training.loss_scale.initial=4294967296", "training.train_iters=8"}));
  engine::StepRing& ring = engine_->ring();
  for (int64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(engine_->RunStep(step, loader_.get(), 0).ok());
  }
  EXPECT_EQ(ring.Read(1).scalars.skip, 1);
  EXPECT_EQ(ring.Read(2).scalars.skip, 1);
  ASSERT_TRUE(engine_->RunStep(3, loader_.get(), 0).ok());
  EXPECT_FALSE(ring.IsDone(3)) << "the host waited within the step";
  ASSERT_TRUE(engine_->RunStep(4, loader_.get(), 0).ok());
  EXPECT_FALSE(ring.IsDone(4));
  EXPECT_EQ(ring.Read(4).scalars.skip, 1);
  EXPECT_EQ(ring.Read(4).scalars.skipped_steps, 4);
  EXPECT_EQ(ring.Read(4).scalars.consumed_samples, 4 * 32);
  EXPECT_EQ(ring.Read(4).scalars.adam_step, 0);
}

class GpuChoicesTest : public GpuTrainTest {
 protected:
  static int64_t NumChoices(kernels::Backend* backend) {
    kernels::TuningTable* const table = backend->tuning();
    return backend->NumPlans() +
           (table == nullptr ? 0 : static_cast<int64_t>(table->Entries().size()));
  }

  // Steps of two microbatches and evaluations on a backend that has chosen nothing yet.
  void ExpectAllChosenWhenPlanned(const std::vector<std::string>& more) {
    const auto backend = kernels::cuda::LoadCudaBackend({}).value();
    const megatrain::v1::JobSpec job = GpuJob(
        Where::kGpu, kLlamaLike,
        Joined({"training.precision=bf16", "training.global_batch_size=34",
                "training.micro_batch_size=17", "model.seq_length=1000", "training.train_iters=3",
                "training.eval.every_iters=1", "training.eval.iters=1"},
               more));
    const auto groups = parallel::RankGroups::CreateForJob(job, 0, nullptr, nullptr).value();
    Observed seen;
    auto trainer = Trainer::Create({.job = &job,
                                    .data_root = dir_.path() + "/data",
                                    .checkpoint_root = dir_.path() + "/checkpoints",
                                    .make_checkpoint_root = true,
                                    .groups = groups.get(),
                                    .backend = backend.get(),
                                    .observer = &seen});
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    const int64_t planned = NumChoices(backend.get());
    EXPECT_GT(planned, 0);
    const TrainResult result = (*trainer)->Run();
    EXPECT_TRUE(result.completed) << result.status;
    EXPECT_EQ(seen.evals.size(), 3U);
    EXPECT_EQ(NumChoices(backend.get()), planned) << "chosen within a step or an evaluation";
  }
};

// 17,000 tokens: two chunks of the head, the last one shorter.
TEST_F(GpuChoicesTest, NothingIsChosenWithinAStep) { ExpectAllChosenWhenPlanned({}); }
TEST_F(GpuChoicesTest, NorWhereDropoutMakesStepsAndEvaluationsDiffer) {
  ExpectAllChosenWhenPlanned({"model.attention_dropout=0.1"});
}
TEST_F(GpuChoicesTest, NorWhereActivationsAreRecomputed) {
  ExpectAllChosenWhenPlanned({"training.recompute.mode=full", "training.deterministic=true"});
}

}  // namespace
}  // namespace mt::train
