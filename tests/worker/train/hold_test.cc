// Ranks that wait and go on: hold, resume, and what may happen to held ranks. Commands are scripted
// by poll: one per step, then one per idle reduction, so that each test knows which vector carries
// which command.
#include <algorithm>
#include <map>
#include <mutex>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::train {
namespace {

class HoldTest : public TrainTest {
 protected:
  HoldTest() { layout_ = {"parallel.data=2"}; }
};

const Command kHoldNow{.kind = CommandKind::kHold, .id = "hold"};
const Command kResumeNow{.kind = CommandKind::kResume, .id = "resume"};

class HoldLayoutTest : public HoldTest,
                       public ::testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(HoldLayoutTest, AHeldRunGoesOnAsIfNothingHadBeen) {
  layout_ = GetParam();
  for (const char* precision : {"training.precision=fp64", "training.precision=fp32"}) {
    const std::vector<std::string> job = {precision, "checkpoint.directory=none",
                                          "training.eval.every_iters=5"};
    const auto calm = Run(job);
    // Held by the bits of step 4 after step 5, for ten idle reductions; then a second time.
    const auto held = Run(job, {{4, kHoldNow},
                                {15, kResumeNow},
                                {20, {CommandKind::kHold, "again"}},
                                {30, {CommandKind::kResume, "on"}}});
    ExpectClean(held, 20);
    ExpectEqualCurve(held[0].seen.steps, calm[0].seen.steps);
    ASSERT_EQ(held[0].seen.evals.size(), calm[0].seen.evals.size());
    for (size_t i = 0; i < calm[0].seen.evals.size(); ++i) {
      EXPECT_EQ(held[0].seen.evals[i].step, calm[0].seen.evals[i].step);
      EXPECT_EQ(held[0].seen.evals[i].loss, calm[0].seen.evals[i].loss);
    }
    for (const RankOutcome& rank : held) {
      EXPECT_EQ(
          rank.seen.states,
          (std::vector<TrainState>{TrainState::kLoading, TrainState::kReady, TrainState::kTraining,
                                   TrainState::kHeld, TrainState::kTraining, TrainState::kHeld,
                                   TrainState::kTraining, TrainState::kExiting}));
      EXPECT_EQ(rank.seen.state_steps, (std::vector<int64_t>{0, 0, 0, 5, 5, 11, 11, 20}))
          << "every rank stops at the same step, the one after the carrier";
    }
    const auto& done = held[0].seen.commands_done;
    ASSERT_EQ(done.size(), 4U);
    EXPECT_EQ(done[0].carrier_step, 4);
    EXPECT_EQ(done[0].step, 5);
    EXPECT_EQ(done[1].id, "resume");
    EXPECT_EQ(done[1].carrier_step, 0) << "an idle reduction carried it";
    EXPECT_EQ(done[1].step, 5);
    EXPECT_EQ(done[2].carrier_step, 10);
    EXPECT_EQ(done[2].step, 11);
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, HoldLayoutTest,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"parallel.data=4"},
                                           CubeLayout()));

// What held ranks leave on disk at two moments of their wait: nothing may have moved.
TEST_F(HoldTest, NothingMovesWhileHeld) {
  std::map<int, int64_t> idle;
  std::mutex mu;
  adjust_ = [&](int rank, TrainArgs* args) {
    args->end_of_step = [&, rank](int64_t step, engine::StepVector* mine) {
      if (step != 0) return;
      const std::lock_guard<std::mutex> lock(mu);
      ++idle[rank];
      EXPECT_EQ(mine->sums.loss, 0);
      EXPECT_EQ(mine->sums.tokens, 0);
      EXPECT_EQ(mine->sums.sum_squares, 0);
    };
  };
  const auto outcomes = Run({"checkpoint.keep_last=5"}, {{3, kHoldNow},
                                                         {6, {CommandKind::kCheckpointNow, "a"}},
                                                         {40, {CommandKind::kCheckpointNow, "b"}},
                                                         {41, kResumeNow}});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(idle[0], 37) << "polls 5 to 41";
  EXPECT_EQ(idle[1], 37);
  const Observed& seen = outcomes[0].seen;
  ASSERT_EQ(seen.steps.size(), 20U) << "no record of an idle reduction";
  EXPECT_EQ(seen.counters.size(), 20U) << "and nothing counted";
  EXPECT_EQ(outcomes[1].seen.counters[4].tokens - outcomes[1].seen.counters[3].tokens, 64);
  ASSERT_EQ(seen.saves.size(), 1U) << "a step that is on disk is not saved twice";
  EXPECT_EQ(seen.saves[0].step, 4);
  EXPECT_EQ(seen.saves[0].consumed_samples, 32);
  ASSERT_EQ(seen.commands_done.size(), 4U);
  for (const size_t i : {1U, 2U}) {
    ASSERT_TRUE(seen.commands_done[i].checkpoint.has_value());
    EXPECT_EQ(seen.commands_done[i].checkpoint->digest, seen.saves[0].digest);
    EXPECT_EQ(seen.commands_done[i].step, 4);
    EXPECT_EQ(seen.commands_done[i].carrier_step, 0);
  }
  EXPECT_GT(seen.progress_calls, 37) << "idle reductions are progress";
}

TEST_F(HoldTest, CheckpointWhileHeldResumesBitEqual) {
  const auto calm = Run({"checkpoint.directory=none"});
  const auto first = Run({}, {{6, kHoldNow}, {9, {CommandKind::kStopWithSave, "stop"}}});
  ExpectClean(first, 7);
  ASSERT_EQ(first[0].seen.commands_done.size(), 2U);
  ASSERT_TRUE(first[0].seen.commands_done[1].checkpoint.has_value());
  EXPECT_EQ(first[0].seen.commands_done[1].checkpoint->step, 7);
  const auto rest = Run({});
  ExpectClean(rest, 20);
  std::vector<StepRecord> joined = first[0].seen.steps;
  joined.insert(joined.end(), rest[0].seen.steps.begin(), rest[0].seen.steps.end());
  ExpectEqualCurve(joined, calm[0].seen.steps);
}

TEST_F(HoldTest, StopWithoutSaveWhileHeldLeavesNothing) {
  const auto outcomes = Run({}, {{6, kHoldNow}, {9, {CommandKind::kStopWithoutSave, "stop"}}});
  ExpectClean(outcomes, 7);
  EXPECT_FALSE(outcomes[0].result.completed);
  EXPECT_TRUE(OnDisk().empty());
  EXPECT_EQ(outcomes[1].seen.states.back(), TrainState::kExiting);
}

TEST_F(HoldTest, HoldBeforeTheFirstStep) {
  adjust_ = [](int, TrainArgs* args) { args->hold = true; };
  const auto calm = Run({"checkpoint.directory=none"}, {{1, kResumeNow}});
  const auto outcomes = Run({}, {{2, {CommandKind::kCheckpointNow, "zero"}}, {5, kResumeNow}});
  ExpectClean(outcomes, 20);
  ExpectEqualCurve(outcomes[0].seen.steps, calm[0].seen.steps);
  for (const RankOutcome& rank : outcomes) {
    EXPECT_EQ(rank.seen.states,
              (std::vector<TrainState>{TrainState::kLoading, TrainState::kReady, TrainState::kHeld,
                                       TrainState::kTraining, TrainState::kExiting}));
  }
  ASSERT_EQ(OnDisk(), (std::vector<checkpoint::CheckpointId>{{0, 1}}));
  // A checkpoint of step 0 is one to go on from.
  adjust_ = nullptr;
  const auto again = Run({});
  ExpectClean(again, 20);
  ExpectEqualCurve(again[0].seen.steps, calm[0].seen.steps);
}

TEST_F(HoldTest, ASavedStepOfAnEarlierPlacementIsNotSavedAgain) {
  const auto first = Run({}, {{4, {CommandKind::kStopWithSave, "stop"}}});
  adjust_ = [](int, TrainArgs* args) { args->hold = true; };
  const auto held = Run(
      {}, {{1, {CommandKind::kCheckpointNow, "now"}}, {2, {CommandKind::kStopWithoutSave, ""}}});
  ExpectClean(held, 5);
  EXPECT_TRUE(held[0].seen.saves.empty());
  const auto& want = first[0].seen.saves.at(0);
  const auto& got = held[0].seen.commands_done.at(0).checkpoint;
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->path, want.path);
  EXPECT_EQ(got->bytes, want.bytes);
  EXPECT_EQ(got->digest, want.digest);
  EXPECT_EQ(got->tokens, want.tokens);
  EXPECT_EQ(got->tokens, 5 * 8 * 16);
}

TEST_F(HoldTest, TwoCommandsInFlight) {
  // Both commands are under way before the first one acts.
  const auto outcomes = Run({}, {{4, kHoldNow},
                                 {5, kResumeNow},
                                 {8, {CommandKind::kCheckpointNow, "save"}},
                                 {9, {CommandKind::kHold, "hold-2"}},
                                 {11, {CommandKind::kResume, "resume-2"}}});
  ExpectClean(outcomes, 20);
  const auto& done = outcomes[0].seen.commands_done;
  ASSERT_EQ(done.size(), 5U);
  EXPECT_EQ(done[0].id, "hold");
  EXPECT_EQ(done[0].step, 5);
  EXPECT_EQ(done[1].id, "resume");
  EXPECT_EQ(done[1].carrier_step, 5);
  EXPECT_EQ(done[1].step, 5) << "held, and let go at once";
  EXPECT_EQ(done[2].checkpoint->step, 9);
  EXPECT_EQ(done[3].id, "hold-2");
  EXPECT_EQ(done[3].carrier_step, 9);
  EXPECT_EQ(done[3].step, 10);
  EXPECT_EQ(done[4].carrier_step, 0);
}

TEST_F(HoldTest, AHoldThatComesTooLateEndsWithTheRun) {
  for (const int64_t poll : {19, 20}) {
    const auto outcomes = Run({"checkpoint.directory=none"}, {{poll, kHoldNow}});
    ExpectClean(outcomes, 20);
    EXPECT_TRUE(outcomes[0].result.completed);
    ASSERT_EQ(outcomes[0].seen.commands_done.size(), 1U);
    EXPECT_EQ(outcomes[0].seen.commands_done[0].step, 20);
    for (const TrainState state : outcomes[1].seen.states) EXPECT_NE(state, TrainState::kHeld);
  }
  // The last bits that still find a step to act before.
  const auto outcomes = Run({"checkpoint.directory=none"}, {{18, kHoldNow}, {25, kResumeNow}});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(outcomes[0].seen.commands_done[0].step, 19);
}

TEST_F(HoldTest, RepeatedVerbsChangeNothing) {
  const auto outcomes =
      Run({"checkpoint.directory=none"},
          {{2, kResumeNow}, {4, kHoldNow}, {8, {CommandKind::kHold, "twice"}}, {9, kResumeNow}});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(outcomes[0].seen.commands_done.size(), 4U);
  EXPECT_EQ(
      std::count(outcomes[1].seen.states.begin(), outcomes[1].seen.states.end(), TrainState::kHeld),
      1);
}

TEST_F(HoldTest, AFaultOfOneRankEndsTheHeldOnes) {
  adjust_ = [](int rank, TrainArgs* args) {
    if (rank != 1) return;
    auto idle = std::make_shared<int>(0);
    args->end_of_step = [idle](int64_t step, engine::StepVector* mine) {
      if (step == 0 && ++*idle == 5) mine->fault = 1;
    };
  };
  for (const RankOutcome& rank : Run({}, {{4, kHoldNow}})) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kNetwork) << rank.result.status;
    EXPECT_EQ(rank.result.last_step, 5);
    EXPECT_EQ(rank.seen.states.back(), TrainState::kExiting);
  }
}

TEST_F(HoldTest, AnAbortOfTheGroupEndsTheHeldOnes) {
  adjust_ = [](int rank, TrainArgs* args) {
    if (rank != 1) return;
    args->end_of_step = [groups = args->groups](int64_t step, engine::StepVector*) {
      if (step == 0) groups->Abort("told to leave");
    };
  };
  for (const RankOutcome& rank : Run({}, {{4, kHoldNow}})) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kNetwork) << rank.result.status;
    EXPECT_EQ(rank.result.last_step, 5);
  }
}

// A clock that stands still but for what each poll adds.
class TickingScript final : public CommandSource {
 public:
  TickingScript(base::ManualClock* clock, Commands scripted)
      : clock_(clock), script_(std::move(scripted)) {}
  std::optional<Command> Poll() override {
    clock_->Advance(std::chrono::seconds(4));
    return script_.Poll();
  }

 private:
  base::ManualClock* clock_;
  Script script_;
};

class HoldTimeTest : public HoldTest {
 protected:
  std::vector<RankOutcome> RunTicking(Commands scripted) {
    base::ManualClock clock;
    TickingScript ticking(&clock, std::move(scripted));
    return RunJob(TinyJob({"parallel.data=2", "checkpoint.every=10s"}),
                  {.root = dir_.path(),
                   .commands = &ticking,
                   .clock = &clock,
                   .adjust = [](int, TrainArgs* args) {
                     args->idle_interval = std::chrono::milliseconds(0);
                   }});
  }
  static std::vector<int64_t> Saved(const std::vector<RankOutcome>& outcomes) {
    std::vector<int64_t> steps;
    for (const CheckpointRecord& save : outcomes[0].seen.saves) steps.push_back(save.step);
    return steps;
  }
};

TEST_F(HoldTimeTest, ThePauseIsNoTrainingTime) {
  const auto outcomes = RunTicking({{4, kHoldNow}, {30, kResumeNow}});
  ExpectClean(outcomes, 20);
  for (const StepRecord& step : outcomes[0].seen.steps) {
    EXPECT_DOUBLE_EQ(step.step_seconds(), 4) << step.step();
  }
  double phases = 0;
  for (const double spent : outcomes[0].seen.counters.back().phase_seconds) phases += spent;
  EXPECT_DOUBLE_EQ(phases, 20 * 4);
  // As without a pause (resume_test), though 100 s passed while held after step 5.
  EXPECT_EQ(Saved(outcomes), (std::vector<int64_t>{4, 8, 12, 16}));
}

TEST_F(HoldTimeTest, ASaveBetweenStepsIsNoStepTime) {
  base::ManualClock clock;
  TickingScript ticking(&clock, {});
  const auto outcomes = RunJob(TinyJob({"checkpoint.every_iters=8"}),
                               {.root = dir_.path(),
                                .commands = &ticking,
                                .clock = &clock,
                                .adjust = [&clock](int, TrainArgs* args) {
                                  args->checkpoint_failpoint = [&clock](std::string_view point) {
                                    if (point == "shard") clock.Advance(std::chrono::seconds(100));
                                    return OkStatus();
                                  };
                                }});
  ExpectClean(outcomes, 20);
  for (const StepRecord& step : outcomes[0].seen.steps) {
    EXPECT_DOUBLE_EQ(step.step_seconds(), 4) << step.step();
    const bool after_save = step.step() == 9 || step.step() == 17;
    EXPECT_DOUBLE_EQ(SecondsIn(step, report::StepPhase::kCheckpoint), after_save ? 100 : 0)
        << step.step();
  }
}

TEST_F(HoldTimeTest, ASaveWhileHeldBeginsTheIntervalAnew) {
  const auto outcomes =
      RunTicking({{4, kHoldNow}, {28, {CommandKind::kCheckpointNow, "now"}}, {30, kResumeNow}});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(Saved(outcomes), (std::vector<int64_t>{4, 5, 9, 13, 17}));
}

}  // namespace
}  // namespace mt::train
