// What ends or interrupts a run: command bits that act on the same step everywhere, values that
// are not finite, faults of one rank, a broken group, too little memory, bad data.
#include <cmath>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

using ControlTest = TrainTest;

constexpr char kFourReplicas[] = "parallel.data=4";
constexpr char kTwoReplicas[] = "parallel.data=2";

TEST_F(ControlTest, BitsOfStepKActBeforeStepKPlusTwoOnEveryRank) {
  const auto outcomes = Run({kFourReplicas}, {{3, {CommandKind::kCheckpointNow, "save-1"}},
                                              {8, {CommandKind::kStopWithoutSave, "stop-1"}}});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    EXPECT_EQ(rank.result.last_step, 9);
    EXPECT_FALSE(rank.result.completed);
  }
  const Observed& seen = outcomes[0].seen;
  ASSERT_EQ(seen.saves.size(), 1U);
  EXPECT_EQ(seen.saves[0].step, 4);
  ASSERT_EQ(seen.commands_done.size(), 2U);
  EXPECT_EQ(seen.commands_done[0].id, "save-1");
  EXPECT_EQ(seen.commands_done[0].carrier_step, 3);
  EXPECT_EQ(seen.commands_done[0].step, 4);
  ASSERT_TRUE(seen.commands_done[0].checkpoint.has_value());
  EXPECT_EQ(seen.commands_done[0].checkpoint->path, seen.saves[0].path);
  EXPECT_EQ(seen.commands_done[1].id, "stop-1");
  EXPECT_EQ(seen.commands_done[1].carrier_step, 8);
  EXPECT_EQ(seen.commands_done[1].step, 9);
  ASSERT_EQ(seen.steps.size(), 9U) << "every step that was run is reported";
  EXPECT_TRUE(outcomes[1].seen.steps.empty()) << "only rank 0 reports";
}

TEST_F(ControlTest, CommandsDoNotChangeTheNumbers) {
  const auto calm = Run({kTwoReplicas, "checkpoint.directory=none"});
  const auto busy = Run({kTwoReplicas, "training.eval.every_iters=3", "checkpoint.every_iters=4"},
                        {{6, {CommandKind::kCheckpointNow, ""}}});
  ExpectEqualCurve(busy[0].seen.steps, calm[0].seen.steps);
}

TEST_F(ControlTest, ACommandOfTheLastStepsEndsWithTheRun) {
  const auto outcomes = Run({}, {{20, {CommandKind::kStopWithSave, "late"}}});
  EXPECT_TRUE(outcomes[0].result.completed);
  const auto& done = outcomes[0].seen.commands_done;
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].id, "late");
  EXPECT_EQ(done[0].carrier_step, 20);
  EXPECT_EQ(done[0].step, 20);
  ASSERT_TRUE(done[0].checkpoint.has_value()) << "it asked for a save: the last one";
  EXPECT_EQ(done[0].checkpoint->step, 20);
}

// One NaN in rank 1's gradients of this step.
void SpoilStep(int64_t bad_step, int rank, TrainArgs* args) {
  if (rank != 1) return;
  args->end_of_step = [=](int64_t step, engine::StepVector* mine) {
    if (step == bad_step) mine->sums.nonfinite += 1;
  };
}

TEST_F(ControlTest, NonfiniteStopEndsEveryRankWithItsExitCode) {
  adjust_ = [](int rank, TrainArgs* args) { SpoilStep(6, rank, args); };
  const auto outcomes = Run({kTwoReplicas, "checkpoint.at_end=true"});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kNumeric);
    EXPECT_FALSE(rank.result.completed);
    EXPECT_EQ(rank.result.last_step, 7) << "found before step 8";
    EXPECT_NE(rank.result.message.find("step 6"), std::string::npos) << rank.result.message;
  }
  EXPECT_TRUE(outcomes[0].seen.steps[5].skipped());
  EXPECT_TRUE(outcomes[0].seen.saves.empty()) << "a spoiled run saves nothing";
}

TEST_F(ControlTest, NonfiniteSkipGoesOnAndCounts) {
  adjust_ = [](int rank, TrainArgs* args) { SpoilStep(6, rank, args); };
  const auto outcomes = Run({kTwoReplicas, "training.nonfinite=skip"});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    EXPECT_TRUE(rank.result.completed);
  }
  const auto& steps = outcomes[0].seen.steps;
  ASSERT_EQ(steps.size(), 20U);
  for (const StepRecord& step : steps) EXPECT_EQ(step.skipped(), step.step() == 6);
  EXPECT_EQ(steps.back().skipped_steps(), 1);
  EXPECT_EQ(steps.back().consumed_samples(), 160) << "the skipped step's samples are spent";
  // The schedule did not move over the skipped step.
  adjust_ = nullptr;
  const auto clean = Run({kTwoReplicas, "checkpoint.directory=none"});
  EXPECT_EQ(steps[6].learning_rate(), clean[0].seen.steps[5].learning_rate());
}

TEST_F(ControlTest, ADynamicLossScaleAnswersToOverflowsUntilItCannot) {
  const std::vector<std::string> half = {kTwoReplicas, "training.precision=fp16",
                                         "training.loss_scale.hysteresis=1"};
  adjust_ = [](int rank, TrainArgs* args) { SpoilStep(6, rank, args); };
  std::vector<std::string> high = half;
  high.emplace_back("training.loss_scale.initial=1024");
  high.emplace_back("checkpoint.directory=none");
  const auto lowered = Run(high);
  ExpectClean(lowered, 20);
  const auto& steps = lowered[0].seen.steps;
  for (const StepRecord& step : steps) {
    EXPECT_EQ(step.skipped(), step.step() == 6);
    EXPECT_EQ(step.loss_scale(), step.step() < 6 ? 1024 : 512);
  }
  std::vector<std::string> low = half;
  low.emplace_back("training.loss_scale.initial=1");
  low.emplace_back("checkpoint.directory=none");
  for (const RankOutcome& rank : Run(low)) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kNumeric)
        << "the scale is at its minimum";
    EXPECT_EQ(rank.result.last_step, 7);
  }
}

TEST_F(ControlTest, AnOverflowOfTheModelItselfStopsTheRun) {
  // A learning rate that throws the weights beyond single precision within a few steps.
  const auto outcomes =
      Run({"training.precision=fp32", "optimizer.lr=1000", "optimizer.min_lr=1000",
           "optimizer.decay=constant", "optimizer.eps=1e-30", "model.init_std=10",
           "optimizer.weight_decay=1000"});
  EXPECT_EQ(failure::CauseOf(outcomes[0].result.status), failure::Cause::kNumeric)
      << outcomes[0].result.status;
}

TEST_F(ControlTest, AFaultOfOneRankStopsAllAtTheSameStep) {
  WriteTokens(base::JoinPath(dir_.path(), "data/bad"), 200, /*bad_document=*/40);
  const auto outcomes = Run({kTwoReplicas, "data.path=[bad]", "training.train_iters=200"});
  const int64_t last = outcomes[0].result.last_step;
  int at_fault = 0;
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.created);
    EXPECT_FALSE(rank.result.status.ok());
    EXPECT_EQ(rank.result.last_step, last);
    const bool own = rank.result.message.find("999") != std::string::npos;
    at_fault += own ? 1 : 0;
    if (!own) {
      EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kNetwork)
          << rank.result.message;
      EXPECT_NE(rank.result.message.find("reported a fault"), std::string::npos);
    }
  }
  EXPECT_GE(at_fault, 1);
}

TEST_F(ControlTest, ABrokenGroupStopsWithinTheStep) {
  adjust_ = [](int rank, TrainArgs* args) {
    if (rank != 1) return;
    args->end_of_step = [groups = args->groups](int64_t step, engine::StepVector*) {
      if (step == 3) groups->Abort("test");
    };
  };
  for (const RankOutcome& rank : Run({kTwoReplicas})) {
    EXPECT_FALSE(rank.result.status.ok());
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kNetwork);
    EXPECT_EQ(rank.result.last_step, 2);
  }
}

TEST_F(ControlTest, TooLittleMemoryIsSaidBeforeTheFirstStep) {
  RunOptions options{.root = dir_.path()};
  options.adjust = [](int rank, TrainArgs* args) {
    if (rank == 1) args->memory_limit_bytes = 1000;
  };
  const auto outcomes = RunJob(TinyJob({kTwoReplicas}), options);
  EXPECT_FALSE(outcomes[0].created);
  EXPECT_FALSE(outcomes[1].created);
  EXPECT_EQ(failure::CauseOf(outcomes[1].result.status), failure::Cause::kOutOfMemory);
  EXPECT_EQ(failure::CauseOf(outcomes[0].result.status), failure::Cause::kNetwork)
      << "not this rank's fault";
  EXPECT_NE(base::Message(outcomes[0].result.status).find("rank 1"), std::string::npos);
}

TEST_F(ControlTest, MissingDataNamesTheFile) {
  const RankOutcome outcome = Run({"data.path=[nowhere]"})[0];
  EXPECT_FALSE(outcome.created);
  EXPECT_EQ(failure::CauseOf(outcome.result.status), failure::Cause::kUserError);
  EXPECT_NE(base::Message(outcome.result.status).find("nowhere.idx"), std::string::npos)
      << outcome.result.status;
}

TEST_F(ControlTest, WrongNumberOfRanksIsRefused) {
  const auto one = parallel::RankGroups::CreateForJob(TinyJob({}), 0, nullptr, nullptr).value();
  RunOptions options{.root = dir_.path()};
  options.adjust = [&](int, TrainArgs* args) { args->groups = one.get(); };
  const auto outcomes = RunJob(TinyJob({kTwoReplicas}), options);
  EXPECT_EQ(outcomes[0].result.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(outcomes[0].created);
}

}  // namespace
}  // namespace mt::train
