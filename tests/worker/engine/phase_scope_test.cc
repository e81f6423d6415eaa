// Scopes of phases: what a block of calls costs is its phase's, the interrupted one goes on behind
// it, and marks are placed exactly where the phases change.
#include "worker/engine/phase_scope.h"

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/worker/engine/scripted_device.h"

namespace mt::engine {
namespace {

class PhaseScopeTest : public ::testing::Test {
 protected:
  void Work(int ms) {
    device_.Enqueue([this, ms] { clock_.Advance(std::chrono::milliseconds(ms)); });
  }
  double SecondsOf(StepPhase phase) { return phases_.Of(1)->phases[static_cast<size_t>(phase)]; }
  // Marks that the device has yet to reach, of a device that has not moved.
  std::string Marks() const { return phases_.LastMark(); }

  base::ManualClock clock_;
  train::ScriptedDevice device_;
  std::unique_ptr<kernels::Stream> stream_ = device_.CreateStream(kernels::StreamPriority::kLow);
  PhaseClock phases_{&device_, stream_.get(), &clock_};
};

TEST_F(PhaseScopeTest, TheInterruptedPhaseGoesOnBehindTheScope) {
  phases_.SetStep(1);
  phases_.Switch(StepPhase::kBackward);
  Work(10);
  {
    const PhaseScope outer(&phases_, StepPhase::kDpComm);
    Work(3);
    {
      const PhaseScope inner(&phases_, StepPhase::kData);
      Work(2);
    }
    Work(4);
  }
  EXPECT_EQ(phases_.open(), StepPhase::kBackward);
  Work(5);
  phases_.EndStep(1);
  EXPECT_EQ(Marks(), "none of 7 marks") << "the first, the backward, two a scope, the end";
  device_.RunAll();
  EXPECT_DOUBLE_EQ(SecondsOf(StepPhase::kBackward), 0.015);
  EXPECT_DOUBLE_EQ(SecondsOf(StepPhase::kDpComm), 0.007);
  EXPECT_DOUBLE_EQ(SecondsOf(StepPhase::kData), 0.002);
}

TEST_F(PhaseScopeTest, TheEndOfAStepClosesThePhasesOfItsScopes) {
  phases_.SetStep(1);
  {
    const PhaseScope reduction(&phases_, StepPhase::kDpComm);
    Work(3);
    const PhaseScope update(&phases_, StepPhase::kOptimizer);
    Work(2);
    phases_.EndStep(1);
  }
  EXPECT_EQ(Marks(), "none of 4 marks") << "nothing is marked behind the end";
  EXPECT_EQ(phases_.open(), StepPhase::kOther);
  device_.RunAll();
  EXPECT_DOUBLE_EQ(SecondsOf(StepPhase::kDpComm), 0.003);
  EXPECT_DOUBLE_EQ(SecondsOf(StepPhase::kOptimizer), 0.002);
  EXPECT_DOUBLE_EQ(phases_.Of(1)->seconds, 0.005);
}

TEST_F(PhaseScopeTest, AnErrorThatIsToBeSeenLeavesThePhaseOpen) {
  {
    PhaseScope scope(&phases_, StepPhase::kDpComm);
    EXPECT_TRUE(scope.KeepOpenOnError(OkStatus()).ok());
    const Status broken = base::Unavailable("a peer left");
    EXPECT_EQ(scope.KeepOpenOnError(broken), broken);
    EXPECT_TRUE(scope.KeepOpenOnError(OkStatus()).ok()) << "the first error counts";
  }
  EXPECT_EQ(phases_.open(), StepPhase::kDpComm);
  {
    PhaseScope scope(&phases_, StepPhase::kOptimizer);
    EXPECT_TRUE(scope.KeepOpenOnError(OkStatus()).ok());
  }
  EXPECT_EQ(phases_.open(), StepPhase::kDpComm) << "without an error the scope goes back";
}

TEST_F(PhaseScopeTest, AnExceptionLeavesThePhaseOpen) {
  try {
    const PhaseScope scope(&phases_, StepPhase::kForward);
    throw std::runtime_error("the device is gone");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(phases_.open(), StepPhase::kForward);
  }
  EXPECT_EQ(Marks(), "none of 2 marks");
}

TEST_F(PhaseScopeTest, WaitsAreReportedByTheirBeginAndEnd) {
  const std::function<void(bool)> on_wait = PhaseOfWaits(&phases_, StepPhase::kPpWait);
  for (const StepPhase around : {StepPhase::kForward, StepPhase::kBackward}) {
    phases_.Switch(around);
    on_wait(true);
    EXPECT_EQ(phases_.open(), StepPhase::kPpWait);
    on_wait(false);
    EXPECT_EQ(phases_.open(), around);
  }
}

}  // namespace
}  // namespace mt::engine
