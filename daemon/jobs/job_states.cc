// The table in three parts (progress, recovery, verbs), completed by rows that hold for every
// active state.
#include "daemon/jobs/job_states.h"

#include <algorithm>
#include <array>
#include <vector>

#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

constexpr JobPosition At(v1::JobState state) { return {state, v1::JOB_STATE_UNSPECIFIED}; }
constexpr JobPosition Stopping(v1::JobState to) { return {v1::STOPPING, to}; }

constexpr JobPosition kQueued = At(v1::QUEUED);
constexpr JobPosition kAdmitted = At(v1::ADMITTED);
constexpr JobPosition kPreflight = At(v1::PREFLIGHT);
constexpr JobPosition kStarting = At(v1::STARTING);
constexpr JobPosition kRunning = At(v1::RUNNING);
constexpr JobPosition kPausing = At(v1::PAUSING);
constexpr JobPosition kHeld = At(v1::PAUSED_HELD);
constexpr JobPosition kReleasing = At(v1::RELEASING);
constexpr JobPosition kFreed = At(v1::PAUSED_RELEASED);
constexpr JobPosition kRecovering = At(v1::RECOVERING);
constexpr JobPosition kToSuccess = Stopping(v1::SUCCEEDED);
constexpr JobPosition kToFailure = Stopping(v1::FAILED);
constexpr JobPosition kToCancel = Stopping(v1::CANCELLED);
using enum JobEvent;

constexpr std::array kProgress = {
    JobTransition{kQueued, kPlaced, kAdmitted},
    JobTransition{kAdmitted, kAllAccepted, kStarting},
    JobTransition{kAdmitted, kPreflightDue, kPreflight},
    JobTransition{kAdmitted, kPlacementFailed, kQueued},
    JobTransition{kPreflight, kPlacementFailed, kQueued},
    JobTransition{kPreflight, kPreflightPassed, kStarting},
    JobTransition{kPreflight, kPreflightExhausted, kToFailure},
    JobTransition{kStarting, kAllReady, kRunning},
    JobTransition{kStarting, kAllHeld, kHeld},
    JobTransition{kPausing, kAllHeld, kHeld},
    JobTransition{kReleasing, kReleased, kFreed},
    JobTransition{kReleasing, kRequeued, kQueued},
    JobTransition{kRunning, kTrainingEnded, kToSuccess},
    JobTransition{kPausing, kTrainingEnded, kToSuccess},
    JobTransition{kToSuccess, kRanksGone, At(v1::SUCCEEDED)},
    JobTransition{kToFailure, kRanksGone, At(v1::FAILED)},
    JobTransition{kToCancel, kRanksGone, At(v1::CANCELLED)},
};

constexpr std::array kRecovery = {
    JobTransition{kStarting, kRecover, kRecovering},
    JobTransition{kRunning, kRecover, kRecovering},
    JobTransition{kPausing, kRecover, kRecovering},
    JobTransition{kHeld, kRecover, kRecovering},
    JobTransition{kToSuccess, kRecover, kRecovering},
    JobTransition{kRecovering, kFenced, kStarting},
    JobTransition{kRecovering, kFencedNewNode, kPreflight},
    JobTransition{kRecovering, kNoRoom, kQueued},
    JobTransition{kRecovering, kNotRetried, kToFailure},
    // Without a restart budget a fault ends the job.
    JobTransition{kQueued, kFault, At(v1::FAILED)},
    JobTransition{kAdmitted, kFault, kToFailure},
    JobTransition{kPreflight, kFault, kToFailure},
    JobTransition{kStarting, kFault, kToFailure},
    JobTransition{kRunning, kFault, kToFailure},
    JobTransition{kPausing, kFault, kToFailure},
    JobTransition{kHeld, kFault, kToFailure},
};

constexpr std::array kVerbs = {
    JobTransition{kQueued, kHold, kFreed},
    JobTransition{kQueued, kRelease, kFreed},
    JobTransition{kQueued, kResume, kQueued},
    JobTransition{kQueued, kCancel, At(v1::CANCELLED)},
    JobTransition{kQueued, kKill, At(v1::CANCELLED)},
    JobTransition{kQueued, kDeadline, At(v1::FAILED)},
    JobTransition{kFreed, kResume, kQueued},
    JobTransition{kFreed, kCancel, At(v1::CANCELLED)},
    JobTransition{kFreed, kKill, At(v1::CANCELLED)},
    JobTransition{kFreed, kDeadline, At(v1::FAILED)},
    JobTransition{kRunning, kHold, kPausing},
    JobTransition{kPausing, kResume, kRunning},
    JobTransition{kHeld, kResume, kRunning},
    JobTransition{kReleasing, kCancel, kToCancel},
    JobTransition{kReleasing, kKill, kToCancel},
    JobTransition{kReleasing, kDeadline, kToFailure},
    JobTransition{kToSuccess, kKill, kToSuccess},
    JobTransition{kToFailure, kKill, kToFailure},
    JobTransition{kToCancel, kKill, kToCancel},
};

constexpr std::array kActive = {kAdmitted, kPreflight, kStarting,  kRunning,
                                kPausing,  kHeld,      kRecovering};
// States in which no rank can be told yet: only the goal changes.
constexpr std::array kGoalOnly = {kAdmitted, kPreflight, kStarting, kRecovering};

std::vector<JobTransition> MakeTransitions() {
  std::vector<JobTransition> table;
  for (const auto rows :
       {std::span<const JobTransition>(kProgress), std::span<const JobTransition>(kRecovery),
        std::span<const JobTransition>(kVerbs)}) {
    table.insert(table.end(), rows.begin(), rows.end());
  }
  for (const JobPosition from : kActive) {
    table.push_back({from, kRelease, kReleasing});
    table.push_back({from, kPreempt, kReleasing});
    table.push_back({from, kCancel, kToCancel});
    table.push_back({from, kKill, kToCancel});
    table.push_back({from, kDeadline, kToFailure});
  }
  for (const JobPosition from : kGoalOnly) {
    table.push_back({from, kHold, from});
    table.push_back({from, kResume, from});
  }
  return table;
}

const std::vector<JobTransition>& AllTransitions() {
  static const std::vector<JobTransition> table = MakeTransitions();
  return table;
}

}  // namespace

std::span<const JobTransition> JobTransitions() { return AllTransitions(); }

std::string_view EventName(JobEvent event) {
  static constexpr std::array<std::string_view, kNumJobEvents> kNames = {
      "placed",
      "all agents accepted",
      "preflight is due",
      "placement failed",
      "preflight passed",
      "preflight failed for the last time",
      "all ranks ready",
      "all ranks held",
      "pause --hold",
      "pause --release",
      "resume",
      "preemption",
      "released",
      "requeued",
      "recovery",
      "fenced",
      "fenced, with a new node",
      "slots do not suffice",
      "not retried",
      "training ended",
      "fault",
      "deadline",
      "cancel",
      "kill",
      "ranks gone"};
  return kNames[static_cast<size_t>(event)];
}

JobPosition PositionOf(const v1::Job& job) { return {job.state(), job.stopping_to()}; }

std::string PositionName(JobPosition position) {
  const std::string& state = v1::JobState_Name(position.state);
  if (position.state != v1::STOPPING) return state;
  return fmt::format("{}({})", state, v1::JobState_Name(position.stopping_to));
}

bool IsFinal(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

bool IsActive(v1::JobState state) {
  return std::ranges::find(kActive, state, &JobPosition::state) != kActive.end();
}

bool TakesWords(v1::JobState state) {
  return state == v1::RUNNING || state == v1::PAUSING || state == v1::PAUSED_HELD;
}

std::string AllowedVerbs(JobPosition position, v1::Goal goal) {
  const auto allows = [position](JobEvent event) {
    return JobStateMachine::Allows(position, event);
  };
  std::vector<std::string_view> verbs;
  if (allows(kHold) && (goal != v1::GOAL_HOLD || position == kQueued))
    verbs.push_back("pause");
  else if (allows(kRelease))
    verbs.push_back("pause --release");
  if (allows(kResume) && goal != v1::GOAL_RUN) verbs.push_back("resume");
  if (TakesWords(position.state)) verbs.push_back("checkpoint");
  if (!IsFinal(position.state)) verbs.push_back("update");
  if (allows(kCancel)) verbs.push_back("cancel");
  if (allows(kKill)) verbs.push_back("kill");
  if (IsFinal(position.state)) verbs.push_back("delete");
  std::string out;
  for (const std::string_view verb : verbs)
    out += fmt::format("{}{}", out.empty() ? "" : ", ", verb);
  return out;
}

bool JobStateMachine::Allows(JobPosition from, JobEvent event) {
  return std::ranges::any_of(AllTransitions(), [&](const JobTransition& row) {
    return row.from == from && row.event == event;
  });
}

StatusOr<JobPosition> JobStateMachine::Next(JobPosition from, JobEvent event) {
  std::string allowed;
  for (const JobTransition& row : AllTransitions()) {
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
