// The schedules of a run's steps: one per number of microbatches, which a batch ramp changes.
// Generated and checked when a step needs one that the step before did not.
#pragma once

#include "common/base/status.h"
#include "worker/parallel/schedule/generate.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::engine {

// One thread.
class StepSchedules {
 public:
  // `largest.microbatches` is the most that a step has. Slots that are enough for it are enough for
  // every step and for evaluation.
  static StatusOr<StepSchedules> Create(const schedule::Request& largest);

  const schedule::Schedule& largest() const { return largest_; }
  // Of a training step. Valid until the next call.
  StatusOr<const schedule::Schedule*> OfStep(int microbatches);
  // Of a pass of forwards alone. Valid until the next call.
  const schedule::Schedule& OfEvaluation(int microbatches);

 private:
  StepSchedules(const schedule::Request& request, schedule::Schedule largest)
      : request_(request), largest_(std::move(largest)), current_(largest_) {}

  schedule::Request request_;
  schedule::Schedule largest_, current_, evaluation_;
};

}  // namespace mt::engine
