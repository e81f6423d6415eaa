// Only the schedule of the current step is kept beside the largest one: ramps change it rarely.
#include "worker/engine/step_schedules.h"

#include <utility>

#include "common/base/check.h"
#include "worker/parallel/schedule/check.h"

namespace mt::engine {
namespace {

StatusOr<parallel::Schedule> Checked(const parallel::ScheduleRequest& request) {
  ASSIGN_OR_RETURN(parallel::Schedule schedule, parallel::GenerateSchedule(request));
  RETURN_IF_ERROR(parallel::CheckSchedule(schedule));
  return schedule;
}

}  // namespace

StatusOr<StepSchedules> StepSchedules::Create(const parallel::ScheduleRequest& largest) {
  ASSIGN_OR_RETURN(parallel::Schedule schedule, Checked(largest));
  return StepSchedules(largest, std::move(schedule));
}

StatusOr<const parallel::Schedule*> StepSchedules::OfStep(int microbatches) {
  if (current_.microbatches == microbatches) return &current_;
  CHECK_LE(microbatches, largest_.microbatches);
  request_.microbatches = microbatches;
  ASSIGN_OR_RETURN(current_, Checked(request_));
  for (size_t stage = 0; stage < current_.slots.size(); ++stage) {
    for (size_t chunk = 0; chunk < current_.slots[stage].size(); ++chunk) {
      CHECK_LE(current_.slots[stage][chunk], largest_.slots[stage][chunk]);
    }
  }
  return &current_;
}

const parallel::Schedule& StepSchedules::OfEvaluation(int microbatches) {
  if (!evaluation_.forward_only || evaluation_.microbatches != microbatches) {
    evaluation_ = parallel::ForwardOnly(largest_, microbatches);
  }
  return evaluation_;
}

}  // namespace mt::engine
