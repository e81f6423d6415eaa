// Only the schedule of the current step is kept beside the largest one: ramps change it rarely.
#include "worker/engine/step_schedules.h"

#include <utility>

#include "common/base/check.h"
#include "worker/parallel/schedule/check.h"

namespace mt::engine {
namespace {

StatusOr<schedule::Schedule> Checked(const schedule::Request& request) {
  ASSIGN_OR_RETURN(schedule::Schedule schedule, schedule::Generate(request));
  RETURN_IF_ERROR(schedule::Check(schedule));
  return schedule;
}

}  // namespace

StatusOr<StepSchedules> StepSchedules::Create(const schedule::Request& largest) {
  ASSIGN_OR_RETURN(schedule::Schedule schedule, Checked(largest));
  return StepSchedules(largest, std::move(schedule));
}

StatusOr<const schedule::Schedule*> StepSchedules::OfStep(int microbatches) {
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

const schedule::Schedule& StepSchedules::OfEvaluation(int microbatches) {
  if (!evaluation_.forward_only || evaluation_.microbatches != microbatches) {
    evaluation_ = schedule::ForwardOnly(largest_, microbatches);
  }
  return evaluation_;
}

}  // namespace mt::engine
