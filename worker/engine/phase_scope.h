// Phases of a step as scopes: a block of calls is timed as one phase, and the phase that it
// interrupted goes on behind it, whichever way the block is left.
#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "common/base/status.h"
#include "worker/engine/phase_clock.h"

namespace mt::engine {

// One thread, the clock's. Scopes nest.
class PhaseScope {
 public:
  // Opens the phase. The clock must outlive the scope.
  PhaseScope(PhaseClock* clock, StepPhase phase)
      : clock_(clock),
        phase_(phase),
        interrupted_(clock->Switch(phase)),
        exceptions_(std::uncaught_exceptions()) {}
  // Goes back to the phase that was interrupted, unless the phase of this scope was closed already
  // (PhaseClock::EndStep). While an exception passes the phase stays open: a device that has failed
  // takes no further marks, and LastMark names the phase it failed in. Throws what a mark throws.
  ~PhaseScope() noexcept(false) {
    if (keep_open_ || clock_->open() != phase_) return;
    if (std::uncaught_exceptions() == exceptions_) clock_->Switch(interrupted_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

  // Returns `status`. An error leaves the phase open when the scope ends, so that LastMark tells
  // where this rank stood when its peers left.
  Status KeepOpenOnError(Status status) {
    keep_open_ = keep_open_ || !status.ok();
    return status;
  }

 private:
  PhaseClock* const clock_;
  const StepPhase phase_;
  const StepPhase interrupted_;
  const int exceptions_;  // that were passing when the scope began
  bool keep_open_ = false;
};

// The same for a caller that reports the begin (true) and the end (false) of its waits: opens the
// phase in between. The clock must outlive the function.
inline std::function<void(bool begin)> PhaseOfWaits(PhaseClock* clock, StepPhase phase) {
  return [clock, phase, interrupted = StepPhase::kOther](bool begin) mutable {
    if (begin) {
      interrupted = clock->Switch(phase);
    } else {
      clock->Switch(interrupted);
    }
  };
}

}  // namespace mt::engine
