// The pipeline schedules of a run's steps, one for each number of microbatches, which a batch ramp
// changes. A schedule is generated and checked when a step needs another one than the step before.
#pragma once

#include "common/base/status.h"
#include "worker/parallel/schedule/generate.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::engine {

// One thread.
class StepSchedules {
 public:
  // `largest.microbatches` is the largest number in any step. Slots that suffice for it suffice for
  // every step and for evaluation. Errors are those of parallel::GenerateSchedule and Check.
  static StatusOr<StepSchedules> Create(const parallel::ScheduleRequest& largest);

  const parallel::Schedule& largest() const { return largest_; }
  // The schedule of a training step; valid until the next call.
  StatusOr<const parallel::Schedule*> OfStep(int microbatches);
  // The schedule of a pass of forwards only; valid until the next call.
  const parallel::Schedule& OfEvaluation(int microbatches);

 private:
  StepSchedules(const parallel::ScheduleRequest& request, parallel::Schedule largest)
      : request_(request), largest_(std::move(largest)), current_(largest_) {}

  parallel::ScheduleRequest request_;
  parallel::Schedule largest_, current_, evaluation_;
};

}  // namespace mt::engine
