#include "daemon/jobs/job_states.h"

#include <array>

#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

constexpr JobPosition At(v1::JobState state) { return {state, v1::JOB_STATE_UNSPECIFIED}; }
constexpr JobPosition Stopping(v1::JobState to) { return {v1::STOPPING, to}; }

constexpr std::array kTable = {
    JobTransition{At(v1::QUEUED), JobEvent::kPlaced, At(v1::ADMITTED)},
    JobTransition{At(v1::QUEUED), JobEvent::kCancel, At(v1::CANCELLED)},
    JobTransition{At(v1::QUEUED), JobEvent::kFault, At(v1::FAILED)},
    JobTransition{At(v1::ADMITTED), JobEvent::kAllAccepted, At(v1::STARTING)},
    JobTransition{At(v1::ADMITTED), JobEvent::kPlacementFailed, At(v1::QUEUED)},
    JobTransition{At(v1::ADMITTED), JobEvent::kFault, Stopping(v1::FAILED)},
    JobTransition{At(v1::ADMITTED), JobEvent::kCancel, Stopping(v1::CANCELLED)},
    JobTransition{At(v1::STARTING), JobEvent::kAllReady, At(v1::RUNNING)},
    JobTransition{At(v1::STARTING), JobEvent::kFault, Stopping(v1::FAILED)},
    JobTransition{At(v1::STARTING), JobEvent::kCancel, Stopping(v1::CANCELLED)},
    JobTransition{At(v1::RUNNING), JobEvent::kTrainingEnded, Stopping(v1::SUCCEEDED)},
    JobTransition{At(v1::RUNNING), JobEvent::kFault, Stopping(v1::FAILED)},
    JobTransition{At(v1::RUNNING), JobEvent::kCancel, Stopping(v1::CANCELLED)},
    JobTransition{Stopping(v1::SUCCEEDED), JobEvent::kRanksGone, At(v1::SUCCEEDED)},
    JobTransition{Stopping(v1::FAILED), JobEvent::kRanksGone, At(v1::FAILED)},
    JobTransition{Stopping(v1::CANCELLED), JobEvent::kRanksGone, At(v1::CANCELLED)},
};

}  // namespace

std::span<const JobTransition> JobTransitions() { return kTable; }

std::string_view EventName(JobEvent event) {
  static constexpr std::array<std::string_view, kNumJobEvents> kNames = {
      "placed",          "all agents accepted", "placement failed",
      "all ranks ready", "training ended",      "fault",
      "cancel",          "ranks gone"};
  return kNames[static_cast<size_t>(event)];
}

std::string PositionName(JobPosition position) {
  const std::string& state = v1::JobState_Name(position.state);
  if (position.state != v1::STOPPING) return state;
  return fmt::format("{}({})", state, v1::JobState_Name(position.stopping_to));
}

bool IsFinal(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

bool IsActive(v1::JobState state) {
  return state == v1::ADMITTED || state == v1::STARTING || state == v1::RUNNING;
}

std::string_view AllowedVerbs(v1::JobState state) {
  return state == v1::QUEUED || IsActive(state) ? "cancel" : "nothing";
}

StatusOr<JobPosition> JobStateMachine::Next(JobPosition from, JobEvent event) {
  std::string allowed;
  for (const JobTransition& row : kTable) {
    if (row.from != from) continue;
    if (row.event == event) return row.to;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", EventName(row.event));
  }
  ++num_refused_;
  return base::FailedPrecondition("job is {}: '{}' is not possible there (possible: {})",
                                  PositionName(from), EventName(event),
                                  allowed.empty() ? "nothing" : allowed);
}

}  // namespace mt::daemon
