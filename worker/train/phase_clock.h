// Where the time of a step goes, by marks on the host: at any moment one phase is open, and a mark
// closes it and opens the next. On a CPU slot work is done when a call returns, so these are the
// times of the work itself.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/base/clock.h"

namespace mt::train {

enum class StepPhase : uint8_t {
  kData,      // waiting for the loader
  kForward,   // embedding to loss
  kBackward,  // both without the communication in them
  kTpComm,    // collectives of the ranks that share each matrix
  kPpWait,    // waiting for a neighbour in the pipeline: the bubble
  kDpComm,    // sums over replicas
  kOptimizer,
  kCheckpoint,
  kOther,  // between the others: commands, records
};
inline constexpr int kNumStepPhases = 9;

// "data", "forward", "backward", "tp_comm", "pp_wait", "dp_comm", "optimizer", "ckpt", "other": the
// keys of metrics.
std::string_view Name(StepPhase phase);

// Indexed by StepPhase.
using PhaseSeconds = std::array<double, kNumStepPhases>;

inline void Add(const PhaseSeconds& more, PhaseSeconds* sum) {
  for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += more[i];
}

// One thread. The clock must outlive it.
class PhaseClock {
 public:
  explicit PhaseClock(const base::Clock* clock);

  // Closes the open phase and opens this one; returns the phase that was open, to go back to.
  StepPhase Switch(StepPhase phase);
  // Seconds by phase since the last Take, the open phase's so far included.
  PhaseSeconds Take();

 private:
  const base::Clock* clock_;
  StepPhase open_ = StepPhase::kOther;
  base::MonotonicTime since_;
  PhaseSeconds seconds_{};
};

}  // namespace mt::train
