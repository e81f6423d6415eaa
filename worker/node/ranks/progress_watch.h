// Decides from a rank's reports whether it makes progress (control-plane P1, P2). Progress is a new
// state, a step, a batch or a byte (RankBeat.progress), or a new mark of its device. The time limit
// depends on the rank's state; a held rank has none. Pure: the time is passed in. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/control/numbers.h"

namespace megatrain::v1 {
enum RankState : int;
class RankBeat;
}  // namespace megatrain::v1

namespace mt::node {

struct ProgressLimits {
  std::chrono::milliseconds comm_init{600'000};  // until the groups are up; a job may set it
  std::chrono::milliseconds load{900'000};       // until training starts; a job may set it
  std::chrono::milliseconds first_steps = control::kFirstStepLimit;
  // Lower bound for a step; a multiple of the p99 of the steps if that is longer.
  std::chrono::milliseconds step = control::kStepLimit;
  std::chrono::milliseconds save = control::kSaveLimit;
  // L9: without a beat for so long its process is frozen or starved.
  std::chrono::milliseconds frozen = control::kRankBeatFrozenAfter;
};

class ProgressWatch {
 public:
  struct Stall {
    base::MonotonicTime since;        // time of the last progress
    std::chrono::milliseconds limit;  // that was exceeded
    // Set if its beats have stopped (L9): the process is frozen or starved. That counts from
    // ProgressLimits::frozen on, whether a limit of progress is over or not, and for a held rank
    // too.
    std::optional<base::MonotonicTime> last_beat;
  };

  ProgressWatch(const ProgressLimits& limits, base::MonotonicTime now);

  // The rank has called, or changed its state.
  void OnState(megatrain::v1::RankState state, base::MonotonicTime now);
  void OnBeat(const megatrain::v1::RankBeat& beat, base::MonotonicTime now);

  // The watching process itself stood still for so long: what it did not hear in that time is no
  // silence of the rank.
  void Forgive(base::MonotonicTime::duration stood_still);

  // nullopt: it makes progress, or its state has no limit, and it beats.
  std::optional<Stall> Look(base::MonotonicTime now) const;
  // When the rank will have been without a beat for too long (L9); nullopt: it has not beaten yet,
  // or its state has no beats.
  std::optional<base::MonotonicTime> SilentFrom() const;
  // The position of its device in the newest beat; empty: not known.
  const std::string& mark() const { return mark_; }

 private:
  // The time limit of the current state; nullopt: none.
  std::optional<std::chrono::milliseconds> Limit() const;
  double StepSecondsP99() const;

  ProgressLimits limits_;
  megatrain::v1::RankState state_;
  base::MonotonicTime moved_;
  std::optional<base::MonotonicTime> last_beat_;
  int64_t progress_ = 0;
  std::string mark_;
  bool saving_ = false;
  int64_t num_steps_ = 0;             // whose times were reported
  std::vector<double> step_seconds_;  // ring of the newest kKeptSteps, in seconds
};

}  // namespace mt::node
