// Times of phases and steps from marks, on a device that lags behind its host; actions as
// recordings.
#include "worker/engine/phase_clock.h"

#include <chrono>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/engine/scripted_device.h"
#include "tests/worker/train/train_rig.h"
#include "worker/engine/action_recordings.h"

namespace mt::train {
namespace {

double Of(const engine::PhaseSeconds& seconds, report::StepPhase phase) {
  return seconds[static_cast<size_t>(phase)];
}

class PhaseClockTest : public ::testing::Test {
 protected:
  // Work of the device that takes this long.
  void Work(int ms) {
    device_.Enqueue([this, ms] { clock_.Advance(std::chrono::milliseconds(ms)); });
  }
  void OneStep(int64_t step, int forward_ms, int backward_ms) {
    phases_.SetStep(step);
    phases_.SetAction(0, 0);
    phases_.Switch(report::StepPhase::kForward);
    Work(forward_ms);
    phases_.Switch(report::StepPhase::kBackward);
    Work(backward_ms);
    phases_.EndStep(step);
  }

  base::ManualClock clock_;
  ScriptedDevice device_;
  std::unique_ptr<kernels::Stream> stream_ = device_.CreateStream(kernels::StreamPriority::kLow);
  engine::PhaseClock phases_{&device_, stream_.get(), &clock_};
};

TEST_F(PhaseClockTest, EachMomentBelongsToOnePhase) {
  phases_.Switch(report::StepPhase::kBackward);
  Work(10);
  const report::StepPhase interrupted = phases_.Switch(report::StepPhase::kDpComm);
  EXPECT_EQ(interrupted, report::StepPhase::kBackward);
  Work(3);
  phases_.Switch(interrupted);
  Work(5);
  phases_.EndStep(1);
  device_.RunAll();
  const std::optional<engine::StepTime> time = phases_.Of(1);
  ASSERT_TRUE(time.has_value());
  EXPECT_DOUBLE_EQ(Of(time->phases, report::StepPhase::kBackward), 0.015);
  EXPECT_DOUBLE_EQ(Of(time->phases, report::StepPhase::kDpComm), 0.003);
  EXPECT_EQ(Of(time->phases, report::StepPhase::kForward), 0);
  EXPECT_DOUBLE_EQ(time->seconds, 0.018);
}

TEST_F(PhaseClockTest, TimesAreThereOnceTheDeviceHasEndedTheStep) {
  OneStep(1, 2, 4);
  OneStep(2, 20, 40);
  EXPECT_FALSE(phases_.Of(1).has_value());
  clock_.Advance(std::chrono::seconds(9));  // the host's time, before the device has begun
  device_.Run(4);                           // as far as the first step's last work
  EXPECT_FALSE(phases_.Of(1).has_value());
  device_.Run(2);
  ASSERT_TRUE(phases_.Of(1).has_value());
  EXPECT_FALSE(phases_.Of(2).has_value());
  device_.RunAll();
  EXPECT_DOUBLE_EQ(phases_.Of(1)->seconds, 0.006);
  EXPECT_DOUBLE_EQ(phases_.Of(2)->seconds, 0.060);
  EXPECT_DOUBLE_EQ(Of(phases_.Of(2)->phases, report::StepPhase::kForward), 0.020);
  EXPECT_DOUBLE_EQ(Of(phases_.Of(2)->phases, report::StepPhase::kBackward), 0.040);
}

// What a trace shows of a step adds up to what its record says.
TEST_F(PhaseClockTest, IntervalsOfTheStepsAskedForAddUpToTheirTimes) {
  OneStep(1, 2, 4);
  device_.RunAll();
  phases_.KeepIntervals(2, 3);
  OneStep(2, 20, 40);
  {  // an evaluation between the two
    phases_.Switch(report::StepPhase::kForward);
    Work(7);
    phases_.EndBetween();
  }
  device_.RunAll();
  clock_.Advance(std::chrono::milliseconds(5));  // the device waits for the host
  OneStep(3, 3, 6);
  OneStep(4, 1, 1);
  device_.RunAll();
  const std::vector<engine::PhaseInterval> kept = phases_.TakeIntervals();
  engine::PhaseSeconds of_step[2] = {};
  int64_t last = 0, between = 0;
  for (const engine::PhaseInterval& interval : kept) {
    EXPECT_LT(interval.begin, interval.end);
    EXPECT_GE(interval.begin, last) << "no two at once";
    last = interval.end;
    if (interval.between) {
      EXPECT_EQ(interval.step, 2);
      between += interval.end - interval.begin;
      continue;
    }
    ASSERT_TRUE(interval.step == 2 || interval.step == 3) << interval.step;
    of_step[interval.step - 2][static_cast<size_t>(interval.phase)] +=
        static_cast<double>(interval.end - interval.begin) / 1e9;
  }
  EXPECT_EQ(between, 7'000'000);
  for (const int64_t step : {2, 3}) {
    const engine::PhaseSeconds recorded = phases_.Of(step)->phases;
    for (size_t i = 0; i < recorded.size(); ++i)
      EXPECT_NEAR(of_step[step - 2][i], recorded[i], 1e-9) << step;
  }
  EXPECT_NEAR(Of(of_step[1], report::StepPhase::kOther), 0.005, 1e-9);
  EXPECT_TRUE(phases_.TakeIntervals().empty());
}

// By the host's clock: what is later than its interval's begin may have kept the device waiting.
TEST_F(PhaseClockTest, IntervalsKnowWhenTheHostHadEnqueuedThem) {
  OneStep(1, 2, 4);
  device_.RunAll();
  phases_.KeepIntervals(2, 3);
  const auto now = [this] {
    return std::chrono::nanoseconds(clock_.Now().time_since_epoch()).count();
  };
  const int64_t ahead = now();
  OneStep(2, 20, 40);  // far ahead of the device
  clock_.Advance(std::chrono::milliseconds(3));
  device_.RunAll();
  phases_.SetStep(3);
  phases_.Switch(report::StepPhase::kForward);
  Work(5);
  device_.RunAll();
  clock_.Advance(std::chrono::milliseconds(7));  // what is next comes late
  const int64_t late = now();
  phases_.EndStep(3);
  device_.RunAll();
  int64_t forward_end = 0;
  for (const engine::PhaseInterval& interval : phases_.TakeIntervals()) {
    const bool starved = interval.step == 3 && interval.phase == report::StepPhase::kForward;
    EXPECT_EQ(interval.enqueued > interval.begin, starved) << interval.step;
    EXPECT_EQ(interval.enqueued, starved ? late : ahead);
    if (!starved) continue;
    forward_end = interval.end;
    EXPECT_EQ(interval.end - interval.begin, 12'000'000);
  }
  EXPECT_EQ(forward_end, late);
}

TEST_F(PhaseClockTest, ADeviceThatWaitsForTheHostBetweenStepsWaitsInTheNextOne) {
  OneStep(1, 2, 4);
  device_.RunAll();
  clock_.Advance(std::chrono::milliseconds(50));
  OneStep(2, 2, 4);
  device_.RunAll();
  EXPECT_DOUBLE_EQ(phases_.Of(2)->seconds, 0.056);
  EXPECT_DOUBLE_EQ(Of(phases_.Of(2)->phases, report::StepPhase::kOther), 0.050);
}

TEST_F(PhaseClockTest, WhatLiesBetweenStepsIsNoPartOfThem) {
  OneStep(1, 2, 4);
  phases_.Switch(report::StepPhase::kCheckpoint);
  Work(100);
  phases_.Switch(report::StepPhase::kOther);
  Work(10);
  phases_.EndBetween();
  Work(3'000);
  phases_.Switch(report::StepPhase::kCheckpoint);
  Work(200);
  phases_.Switch(report::StepPhase::kOther);
  phases_.EndPause();
  OneStep(2, 2, 4);
  OneStep(3, 2, 4);
  device_.RunAll();
  EXPECT_DOUBLE_EQ(phases_.Of(2)->seconds, 0.006);
  EXPECT_DOUBLE_EQ(Of(phases_.Of(2)->between, report::StepPhase::kCheckpoint), 0.300);
  EXPECT_DOUBLE_EQ(Of(phases_.Of(2)->between, report::StepPhase::kOther), 0.010)
      << "without the pause";
  EXPECT_EQ(phases_.Of(3)->between, engine::PhaseSeconds{});
}

TEST_F(PhaseClockTest, OldStepsAreForgotten) {
  for (int64_t step = 1; step <= engine::PhaseClock::kSteps + 1; ++step) OneStep(step, 1, 1);
  device_.RunAll();
  EXPECT_FALSE(phases_.Of(1).has_value());
  EXPECT_TRUE(phases_.Of(2).has_value());
  EXPECT_TRUE(phases_.Of(engine::PhaseClock::kSteps + 1).has_value());
}

TEST_F(PhaseClockTest, AHostARingAheadWaitsAndLosesNothing) {
  phases_.SetStep(1);
  constexpr int kRounds = 50'000;  // marks: more than three rings
  for (int i = 0; i < kRounds; ++i) {
    phases_.Switch(report::StepPhase::kForward);
    device_.Enqueue([this] { clock_.Advance(std::chrono::nanoseconds(3)); });
    phases_.Switch(report::StepPhase::kBackward);
    device_.Enqueue([this] { clock_.Advance(std::chrono::nanoseconds(5)); });
  }
  phases_.EndStep(1);
  EXPECT_LT(device_.num_waiting(), size_t{2 * kRounds});
  device_.RunAll();
  const std::optional<engine::StepTime> time = phases_.Of(1);
  ASSERT_TRUE(time.has_value());
  EXPECT_DOUBLE_EQ(Of(time->phases, report::StepPhase::kForward), 3e-9 * kRounds);
  EXPECT_DOUBLE_EQ(Of(time->phases, report::StepPhase::kBackward), 5e-9 * kRounds);
}

TEST_F(PhaseClockTest, TheLastMarkTellsWhereTheDeviceStands) {
  EXPECT_EQ(phases_.LastMark(), "none of 1 marks");
  EXPECT_EQ(phases_.LastPhase(), report::StepPhase::kOther);
  phases_.SetStep(12);
  phases_.SetAction(3, 1);
  phases_.Switch(report::StepPhase::kBackward);
  Work(1);
  phases_.Switch(report::StepPhase::kTpComm);
  phases_.EndStep(12);
  device_.Run(3);
  EXPECT_EQ(phases_.LastMark(),
            "step 12, microbatch 3, chunk 1: backward; 2 marks enqueued behind it");
  EXPECT_EQ(phases_.LastPhase(), report::StepPhase::kBackward);
  device_.Run(1);
  EXPECT_EQ(phases_.LastMark(),
            "step 12, microbatch 3, chunk 1: tp_comm; 1 marks enqueued behind it");
  EXPECT_EQ(phases_.LastPhase(), report::StepPhase::kTpComm) << "the device's, not the host's";
  device_.RunAll();
  EXPECT_EQ(phases_.LastPhase(), report::StepPhase::kOther);
  EXPECT_EQ(phases_.LastMark(), "end of step 12; 0 marks enqueued behind it");
}

class ActionRecordingsTest : public PhaseClockTest {
 protected:
  // A step of `microbatches` forwards, 5 ms each.
  void Step(int64_t step, int microbatches) {
    phases_.SetStep(step);
    recordings_.BeginStep();
    for (int i = 0; i < microbatches; ++i) {
      recordings_.Run({.place = i}, [&] {
        ++eager_or_recorded_;
        phases_.Switch(report::StepPhase::kForward);
        Work(5);
        device_.Enqueue([this] { ++runs_; });
        phases_.Switch(report::StepPhase::kOther);
      });
    }
    phases_.EndStep(step);
    device_.RunAll();
  }

  engine::ActionRecordings recordings_{
      {.device = &device_, .stream = stream_.get(), .phases = &phases_, .enabled = true}};
  int eager_or_recorded_ = 0;  // times that the host went through the calls
  int runs_ = 0;               // times that the device did
};

TEST_F(ActionRecordingsTest, AnActionIsEagerOnceThenRecordedThenOnlyLaunched) {
  Step(1, 2);
  EXPECT_EQ(device_.num_recorded(), 0);
  Step(2, 2);
  EXPECT_EQ(device_.num_recorded(), 2);
  EXPECT_EQ(device_.num_launches(), 2);
  EXPECT_EQ(eager_or_recorded_, 4);
  Step(3, 3);  // one more microbatch than ever: eager first
  EXPECT_EQ(eager_or_recorded_, 5);
  Step(4, 3);
  EXPECT_EQ(recordings_.num_recordings(), 3);
  EXPECT_EQ(eager_or_recorded_, 6);
  EXPECT_EQ(runs_, 2 + 2 + 3 + 3) << "each action of each step ran once";
}

TEST_F(ActionRecordingsTest, MarksInsideCountInEveryLaunch) {
  for (int64_t step = 1; step <= 6; ++step) Step(step, 4);
  for (int64_t step = 3; step <= 6; ++step) {
    EXPECT_DOUBLE_EQ(phases_.Of(step)->seconds, 0.020) << step;
    EXPECT_DOUBLE_EQ(Of(phases_.Of(step)->phases, report::StepPhase::kForward), 0.020) << step;
  }
  EXPECT_EQ(phases_.LastMark(), "end of step 6; 0 marks enqueued behind it");
}

// The host has enqueued what is in a recording once it has launched it.
TEST_F(ActionRecordingsTest, MarksInsideAreEnqueuedByTheLaunch) {
  for (int64_t step = 1; step <= 2; ++step) Step(step, 1);
  phases_.KeepIntervals(3, 3);
  const std::chrono::nanoseconds launched = clock_.Now().time_since_epoch();
  Step(3, 1);
  EXPECT_EQ(device_.num_launches(), 2);
  const std::vector<engine::PhaseInterval> kept = phases_.TakeIntervals();
  ASSERT_EQ(kept.size(), 1U) << "the others have no length";
  EXPECT_EQ(kept[0].phase, report::StepPhase::kForward);
  EXPECT_EQ(kept[0].enqueued, launched.count());
}

TEST_F(ActionRecordingsTest, WhatCannotBeRecordedGoesOnEagerly) {
  device_.RefuseRecordings("a call waits for the host");
  for (int64_t step = 1; step <= 4; ++step) Step(step, 2);
  EXPECT_EQ(runs_, 8);
  EXPECT_EQ(device_.num_launches(), 0);
  EXPECT_FALSE(recordings_.on());
  EXPECT_DOUBLE_EQ(phases_.Of(4)->seconds, 0.010) << "marks of the attempt do not count";
}

TEST_F(ActionRecordingsTest, KeysThatDifferInAnythingAreRecordedApart) {
  const std::vector<engine::ActionKey> keys = {
      {},           {.chunk = 1},       {.slot = 1},
      {.place = 1}, {.backward = true}, {.mode = kernels::GradMode::kAdd}};
  for (int64_t step = 1; step <= 3; ++step) {
    recordings_.BeginStep();
    for (const engine::ActionKey& key : keys) recordings_.Run(key, [] {});
  }
  EXPECT_EQ(recordings_.num_recordings(), static_cast<int64_t>(keys.size()));
  EXPECT_EQ(device_.num_launches(), static_cast<int>(2 * keys.size()));
}

// What each rank was at when it ended: who hangs, and where, reads the same.
class LastMarkTest : public TrainTest {};

TEST_F(LastMarkTest, AfterARunItIsTheEndOfTheLastStep) {
  const auto outcomes = Run({"parallel.data=2", "checkpoint.directory=none"});
  ExpectClean(outcomes, 20);
  for (const RankOutcome& rank : outcomes) {
    EXPECT_EQ(rank.last_mark, "end of step 20; 0 marks enqueued behind it");
  }
}

TEST_F(LastMarkTest, ARankWhosePeerLeftStandsInTheCollective) {
  adjust_ = [](int rank, TrainArgs* args) {
    if (rank != 1) return;
    args->end_of_step = [groups = args->groups](int64_t step, engine::StepVector*) {
      if (step == 6) groups->Abort("told to leave");
    };
  };
  const auto outcomes = Run({"parallel.data=2", "checkpoint.directory=none"});
  EXPECT_EQ(outcomes[0].result.last_step, 5);
  EXPECT_EQ(outcomes[0].last_mark,
            "step 6, microbatch 1, chunk 0: dp_comm; 0 marks enqueued behind it");
}

}  // namespace
}  // namespace mt::train
