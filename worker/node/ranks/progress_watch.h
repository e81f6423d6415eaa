// Whether a rank moves, by what it tells its agent (P1, P2): a new state, a step, a batch or a byte
// (RankBeat.progress), a new mark of its device. How long it may stand still depends on its state;
// a held rank may for ever. Pure: it is told the time; loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/control_numbers.h"

namespace megatrain::v1 {
enum RankState : int;
class RankBeat;
}  // namespace megatrain::v1

namespace mt::node {

struct ProgressLimits {
  std::chrono::milliseconds comm_init{600'000};  // until the group is up; the job's own
  std::chrono::milliseconds load{900'000};       // until training starts; the job's own
  std::chrono::milliseconds first_steps = rpc::kFirstStepLimit;
  std::chrono::milliseconds step = rpc::kStepLimit;  // at least
  std::chrono::milliseconds save = rpc::kSaveLimit;
};

class ProgressWatch {
 public:
  struct Stall {
    base::MonotonicTime since;        // the last sign of progress
    std::chrono::milliseconds limit;  // that was passed
    // Set where its beats have stopped too (L9): the process is frozen or starved.
    std::optional<base::MonotonicTime> last_beat;
  };

  ProgressWatch(const ProgressLimits& limits, base::MonotonicTime now);

  // The rank called, or changed its state.
  void OnState(megatrain::v1::RankState state, base::MonotonicTime now);
  void OnBeat(const megatrain::v1::RankBeat& beat, base::MonotonicTime now);

  // nullopt: it moves, or need not.
  std::optional<Stall> Look(base::MonotonicTime now) const;
  // Where its device stands, as of the newest beat; empty: not known.
  const std::string& mark() const { return mark_; }

 private:
  // What the state allows; nullopt: anything.
  std::optional<std::chrono::milliseconds> Limit() const;
  double StepSecondsP99() const;

  ProgressLimits limits_;
  megatrain::v1::RankState state_;
  base::MonotonicTime moved_;
  std::optional<base::MonotonicTime> last_beat_;
  int64_t progress_ = 0;
  std::string mark_;
  bool saving_ = false;
  int64_t num_steps_ = 0;             // whose times were heard
  std::vector<double> step_seconds_;  // of the newest kKeptSteps, a ring
};

}  // namespace mt::node
