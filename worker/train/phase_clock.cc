#include "worker/train/phase_clock.h"

#include <chrono>
#include <utility>

namespace mt::train {

std::string_view Name(StepPhase phase) {
  switch (phase) {
    case StepPhase::kData:
      return "data";
    case StepPhase::kForward:
      return "forward";
    case StepPhase::kBackward:
      return "backward";
    case StepPhase::kTpComm:
      return "tp_comm";
    case StepPhase::kPpWait:
      return "pp_wait";
    case StepPhase::kDpComm:
      return "dp_comm";
    case StepPhase::kOptimizer:
      return "optimizer";
    case StepPhase::kCheckpoint:
      return "ckpt";
    case StepPhase::kOther:
      return "other";
  }
  return "?";
}

PhaseClock::PhaseClock(const base::Clock* clock) : clock_(clock), since_(clock->Now()) {}

StepPhase PhaseClock::Switch(StepPhase phase) {
  const base::MonotonicTime now = clock_->Now();
  seconds_[static_cast<size_t>(open_)] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  return std::exchange(open_, phase);
}

PhaseSeconds PhaseClock::Take() {
  Switch(open_);
  return std::exchange(seconds_, PhaseSeconds{});
}

}  // namespace mt::train
