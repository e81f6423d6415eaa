// Whole training runs on a GPU, eager and with recorded actions: the same bits at every step, and
// as many recordings as the stage has actions of different kinds. Skipped, saying why, without a
// GPU.
#include <utility>

#include "kernels/cuda/module.h"
#include "tests/worker/engine/counting_backend.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

class RecordingsTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    auto gpu = kernels::cuda::LoadCudaBackend({});
    if (!gpu.ok()) GTEST_SKIP() << gpu.status();
    gpu_ = std::move(gpu).value();
    adjust_ = [this](int /*rank*/, TrainArgs* args) {
      counted_ = std::make_unique<CountingBackend>(gpu_.get());
      counted_->refusal = refusal_;
      args->backend = counted_.get();
    };
  }
  // 20 steps of four microbatches, dropout 0.1, deterministic; the curve of a run that ended well.
  std::vector<StepRecord> Curve(std::vector<std::string> overrides, bool recorded) {
    std::vector<std::string> all = {
        "checkpoint.directory=none", "training.deterministic=true", "model.hidden_size=128",
        "training.precision=bf16",
        recorded ? "training.recordings=true" : "training.recordings=false"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const std::vector<RankOutcome> outcomes = Run(all);
    ExpectClean(outcomes, 20);
    return outcomes[0].seen.steps;
  }
  void ExpectSameBits(const std::vector<std::string>& overrides, int recordings, int launches) {
    const std::vector<StepRecord> eager = Curve(overrides, false);
    EXPECT_EQ(counted_->counts().recorded, 0);
    const std::vector<StepRecord> recorded = Curve(overrides, true);
    EXPECT_EQ(counted_->counts().recorded, recordings);
    EXPECT_EQ(counted_->counts().launched, launches);
    ASSERT_EQ(eager.size(), 20U);
    ExpectEqualCurve(recorded, eager);
    EXPECT_LT(eager.back().loss(), eager.front().loss());
    EXPECT_NE(eager.back().grad_norm(), eager.front().grad_norm());
  }

  std::unique_ptr<kernels::Backend> gpu_;
  std::unique_ptr<CountingBackend> counted_;  // of the newest run
  std::string refusal_;
};

// Forward and backward, the first microbatch's and the others', in each of 19 steps.
TEST_F(RecordingsTest, TheCurveIsTheEagerOneToTheLastBit) {
  ExpectSameBits({"model.attention_dropout=0"}, 4, 19 * 8);
}

TEST_F(RecordingsTest, WithAttentionDropoutAndFp32Too) {
  ExpectSameBits({"training.precision=fp32"}, 4, 19 * 8);
}

// Each microbatch has other positions at the same address.
TEST_F(RecordingsTest, PositionsThatRestartAreReadAtTheirPlace) {
  ExpectSameBits({"data.reset_positions=true", "model.attention_dropout=0"}, 4, 19 * 8);
  ExpectSameBits({"data.reset_positions=true", "model.attention_dropout=0", "model.position=rope",
                  "model.qk_norm=true"},
                 4, 19 * 8);
}

TEST_F(RecordingsTest, WithALossScaleThatMoves) {
  ExpectSameBits({"training.precision=fp16", "training.loss_scale.initial=1024",
                  "training.loss_scale.window=4"},
                 4, 19 * 8);
}

TEST_F(RecordingsTest, OneMicrobatchAStepOverwritesOnly) {
  ExpectSameBits({"training.micro_batch_size=8"}, 2, 19 * 2);
}

// 10 steps of two microbatches, then 10 of four: nothing new to record.
TEST_F(RecordingsTest, ARampChangesTheListNotARecording) {
  ExpectSameBits({"training.batch_ramp=4,4,40"}, 4, 9 * 4 + 10 * 8);
}

TEST_F(RecordingsTest, RecomputationIsRecordedToo) {
  ExpectSameBits({"training.recompute.mode=full", "model.attention_dropout=0"}, 4, 19 * 8);
}

TEST_F(RecordingsTest, ADeviceThatRefusesTrainsOnEagerly) {
  refusal_ = "not today";
  const std::vector<StepRecord> refused = Curve({}, true);
  EXPECT_EQ(counted_->counts().launched, 0);
  EXPECT_EQ(counted_->counts().refused, 1) << "asked once, then never again";
  refusal_.clear();
  ExpectEqualCurve(refused, Curve({}, false));
}

TEST_F(RecordingsTest, PhasesAreTheDevicesInsideRecordingsToo) {
  const std::vector<StepRecord> steps = Curve({}, true);
  for (size_t i = 2; i < steps.size(); ++i) {
    const StepRecord& step = steps[i];
    double sum = 0;
    for (const auto& [phase, seconds] : step.phase_seconds()) sum += seconds;
    EXPECT_NEAR(sum, step.step_seconds(), 1e-9);
    for (const report::StepPhase phase : {report::StepPhase::kForward, report::StepPhase::kBackward,
                                          report::StepPhase::kOptimizer}) {
      EXPECT_GT(SecondsIn(step, phase), 0) << Name(phase);
    }
    EXPECT_GT(SecondsIn(step, report::StepPhase::kBackward) +
                  SecondsIn(step, report::StepPhase::kForward),
              0.1 * step.step_seconds());
  }
}

}  // namespace
}  // namespace mt::train
