// Steps whose update was not taken: when they end a run, what its saves say of them, and which
// checkpoints stay.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

using Steps = std::vector<int64_t>;

class SkippedStepsTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    layout_ = {"training.nonfinite=skip"};
  }
  // Gradients of these steps are not finite; the loss is.
  void Spoil(const std::function<bool(int64_t step)>& is_bad) {
    adjust_ = [is_bad](int, TrainArgs* args) {
      args->end_of_step = [is_bad](int64_t step, engine::StepVector* mine) {
        if (step > 0 && is_bad(step)) mine->sums.nonfinite += 1;
      };
    };
  }
  void SpoilFrom(int64_t first) {
    Spoil([first](int64_t step) { return step >= first; });
  }
  static void ExpectNumeric(const TrainResult& result, const std::string& text) {
    EXPECT_EQ(failure::CauseOf(result.status), failure::Cause::kNumeric) << result.status;
    EXPECT_FALSE(result.completed);
    EXPECT_NE(base::Message(result.status).find(text), std::string::npos) << result.status;
  }
  checkpoint::Manifest ManifestOf(int64_t step) const {
    return checkpoint::ReadManifest(base::JoinPath(dir_.path(), "checkpoints/tiny"), {step, 1})
        .value();
  }
};

TEST_F(SkippedStepsTest, SoManyInARowEndTheRunOnEveryRank) {
  SpoilFrom(6);
  const auto outcomes = Run({"parallel.data=2", "training.stop_after_skipped=8",
                             "checkpoint.every_iters=5", "checkpoint.at_end=true"});
  for (const RankOutcome& rank : outcomes) {
    ExpectNumeric(rank.result, "the last 8 steps, from step 6 to step 13, were all skipped");
    ExpectNumeric(rank.result, "the weights are those of step 5. 8 of the 13 steps of this run");
    ExpectNumeric(rank.result, "from a checkpoint older than step 5");
    EXPECT_EQ(rank.result.last_step, 14) << "found before step 15";
  }
  EXPECT_EQ(StepsOnDisk(), (Steps{5, 10}));
}

TEST_F(SkippedStepsTest, AStepThatIsTakenBeginsTheCountAnew) {
  Spoil([](int64_t step) { return step % 8 != 0; });
  const auto outcomes = Run({"training.stop_after_skipped=8", "checkpoint.directory=none"});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(outcomes[0].result.summary.skipped_steps, 18);
  EXPECT_NE(outcomes[0].result.message.find("skipped steps: 18"), std::string::npos)
      << outcomes[0].result.message;
  const auto shorter = Run({"training.stop_after_skipped=7", "checkpoint.directory=none"});
  ExpectNumeric(shorter[0].result, "from step 1 to step 7");
}

TEST_F(SkippedStepsTest, OffGoesOnToTheEnd) {
  SpoilFrom(1);
  ExpectClean(Run({"training.stop_after_skipped=0", "checkpoint.directory=none"}), 20);
}

TEST_F(SkippedStepsTest, AnEndWithoutAStepSinceTheLastSaveIsAFailure) {
  SpoilFrom(11);
  const auto outcomes = Run({"checkpoint.every_iters=10", "checkpoint.at_end=true"});
  ExpectNumeric(outcomes[0].result, "no step was taken after its last save, of step 10");
  EXPECT_EQ(outcomes[0].result.last_step, 20);
  EXPECT_EQ(StepsOnDisk(), (Steps{10}));
}

TEST_F(SkippedStepsTest, AnEndByACondition) {
  SpoilFrom(11);
  const auto outcomes =
      Run({"checkpoint.every_iters=10", "training.exit_at_iter=20", "training.train_iters=40"});
  ExpectNumeric(outcomes[0].result, "no step was taken after its last save, of step 20");
}

TEST_F(SkippedStepsTest, ASaveAmongThemIsNoProgressAtTheEnd) {
  SpoilFrom(11);
  const auto outcomes = Run({"checkpoint.every_iters=8"});
  ExpectNumeric(outcomes[0].result, "from step 11 to step 20");
  EXPECT_EQ(ManifestOf(16).skipped_since_save, 6);
  EXPECT_FALSE(ManifestOf(16).spoiled) << "steps 9 and 10 were taken";
}

TEST_F(SkippedStepsTest, AFewAtTheEndAreNoFailure) {
  SpoilFrom(12);
  ExpectClean(Run({"checkpoint.every_iters=11", "checkpoint.at_end=true"}), 20);
}

TEST_F(SkippedStepsTest, ManyAtTheEndAreNoneWhereAStepWasTakenSinceTheLastSave) {
  SpoilFrom(11);
  ExpectClean(Run({"checkpoint.every_iters=9", "training.exit_at_iter=17"}), 17);
  ExpectClean(Run({"name=other", "checkpoint.every_iters=30", "checkpoint.at_end=true"}), 20);
  EXPECT_EQ(OnDisk("other").size(), 1U);
}

TEST_F(SkippedStepsTest, AStopByCommandIsNoEnd) {
  SpoilFrom(11);
  const auto outcomes = Run({"checkpoint.every_iters=10", "training.train_iters=60"},
                            {{25, {CommandKind::kStopWithSave, "release"}}});
  EXPECT_TRUE(outcomes[0].result.status.ok()) << outcomes[0].result.status;
  EXPECT_FALSE(outcomes[0].result.completed);
}

TEST_F(SkippedStepsTest, TheCountBeginsWithAStart) {
  Spoil([](int64_t step) { return step > 20 && step <= 55; });
  const std::vector<std::string> overrides = {"training.stop_after_skipped=30",
                                              "training.train_iters=60"};
  const auto first = Run(overrides, {{40, {CommandKind::kStopWithSave, "release"}}});
  ASSERT_TRUE(first[0].result.status.ok()) << first[0].result.status;
  const auto second = Run(overrides);
  ExpectClean(second, 60);
  EXPECT_EQ(second[0].result.summary.skipped_steps, 35);
  EXPECT_EQ(second[0].result.summary.restarts, 1);
}

TEST_F(SkippedStepsTest, ADynamicLossScaleMayFall) {
  layout_ = {"training.precision=fp16", "training.loss_scale.initial=1024",
             "training.loss_scale.hysteresis=1", "training.stop_after_skipped=3",
             "checkpoint.every_iters=15"};
  Spoil([](int64_t step) { return step <= 4 || step >= 16; });
  const auto outcomes = Run({});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(outcomes[0].result.summary.skipped_steps, 9);
  // At its minimum from step 2 on.
  SpoilFrom(1);
  const auto lowest =
      Run({"name=lowest", "training.nonfinite=skip", "training.loss_scale.min=512"});
  ExpectNumeric(lowest[0].result, "the last 4 steps, from step 1 to step 4");
}

TEST_F(SkippedStepsTest, AStaticLossScaleFarTooLargeFails) {
  const auto outcomes = Run({"training.precision=fp16", "training.loss_scale.value=1e12",
                             "training.stop_after_skipped=12", "checkpoint.every_iters=5"});
  ExpectNumeric(outcomes[0].result, "from step 1 to step 12");
  ExpectNumeric(outcomes[0].result, "the loss scale was 1e+12");
  ExpectNumeric(outcomes[0].result, "lower training.loss_scale.value");
  for (const StepRecord& step : outcomes[0].seen.steps) EXPECT_TRUE(step.skipped());
  EXPECT_TRUE(ManifestOf(5).spoiled);
  EXPECT_EQ(ManifestOf(10).skipped_since_save, 5);
}

TEST_F(SkippedStepsTest, SpoiledSavesPushOutNone) {
  SpoilFrom(21);
  const auto outcomes = Run({"training.train_iters=60", "checkpoint.every_iters=5",
                             "checkpoint.keep_last=2", "training.stop_after_skipped=30"});
  ExpectNumeric(outcomes[0].result, "from step 21 to step 50");
  EXPECT_EQ(StepsOnDisk(), (Steps{15, 20, 45})) << "the newest, too: a start goes on from it";
}

TEST_F(SkippedStepsTest, AStartGoesOnFromASpoiledSaveWhichThenGivesWay) {
  SpoilFrom(11);
  const std::vector<std::string> saves = {"training.train_iters=40", "checkpoint.every_iters=5",
                                          "checkpoint.keep_last=2",
                                          "training.stop_after_skipped=14"};
  ExpectNumeric(Run(saves)[0].result, "from step 11 to step 24");
  EXPECT_EQ(StepsOnDisk(), (Steps{5, 10, 20}));
  adjust_ = nullptr;
  const auto outcomes = Run(saves);
  ExpectClean(outcomes, 40);
  EXPECT_EQ(outcomes[0].seen.infos.at(0).resumed_from_step, 20);
  EXPECT_EQ(StepsOnDisk(), (Steps{35, 40}));
}

TEST_F(SkippedStepsTest, ALossThatIsNoNumberSpoilsTheSaveBehindIt) {
  adjust_ = [](int, TrainArgs* args) {
    args->end_of_step = [](int64_t step, engine::StepVector* mine) {
      if (step == 10) mine->sums.loss = std::numeric_limits<double>::quiet_NaN();
      if (step == 15) mine->sums.nonfinite += 1;
    };
  };
  ExpectClean(Run({"checkpoint.every_iters=5", "checkpoint.keep_last=9"}), 20);
  EXPECT_EQ(StepsOnDisk(), (Steps{5, 10, 15, 20}));
  EXPECT_FALSE(ManifestOf(5).spoiled);
  EXPECT_TRUE(ManifestOf(10).spoiled);
  EXPECT_EQ(ManifestOf(10).skipped_since_save, 1);
  EXPECT_FALSE(ManifestOf(15).spoiled) << "its gradients alone were not finite";
  EXPECT_EQ(ManifestOf(15).skipped_since_save, 1);
  EXPECT_EQ(ManifestOf(20).skipped_since_save, 0);
}

TEST_F(SkippedStepsTest, TheEndSaysWhatTheRunHasComeTo) {
  const std::vector<std::string> overrides = {"training.eval.every_iters=5",
                                              "training.eval.iters=1"};
  std::vector<std::string> half = overrides;
  half.emplace_back("training.exit_at_iter=10");
  const TrainResult first = Run(half)[0].result;
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(first.summary.restarts, 0);
  const auto outcomes = Run(overrides);
  const TrainResult& result = outcomes[0].result;
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.summary.skipped_steps, 0);
  EXPECT_EQ(result.summary.restarts, 1);
  // 20 steps of 8 samples of 16 tokens; 180 documents of 20 to 59.
  EXPECT_GT(result.summary.passes, 0.25);
  EXPECT_LT(result.summary.passes, 0.5);
  ASSERT_TRUE(result.summary.best_evaluation.has_value());
  EXPECT_EQ(result.summary.best_evaluation.value_or(EvalRecord{}).step, 15)
      << "that over the whole split is another measure";
  EXPECT_EQ(result.message.find("completed after step 20 of 20; restarts: 1; passes"), 0U)
      << result.message;
  EXPECT_NE(result.message.find("; best validation loss since the last start: "),
            std::string::npos);
}

}  // namespace
}  // namespace mt::train
