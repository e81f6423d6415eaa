// The table itself: what leads from where to where with what actions, in sections (progress,
// faults, recovery, verbs, what is found, reserved), and small predicates over states.
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
constexpr JobPosition kToQueue = Stopping(v1::QUEUED);
using enum JobEvent;
using enum JobAction;

// A placement that failed: its slots become free, and the job goes back to its place in the queue,
// where no save that ranks of before owed is waited for. Likewise behind a missing checkpoint.
constexpr JobActions kPlaceAgain = {kFreeSlots, kCloseEpoch, kForgetRanks, kRetryLater, kFailSaves};
constexpr JobActions kBackToQueue = {kCloseEpoch, kForgetRanks, kAwaitBase, kFailSaves};

// Where the job's ranks are placed, start, train and end.
constexpr std::array kProgress = {
    JobTransition{kQueued, kPlaced, kAdmitted, {kClearWaiting, kCloseEpoch, kAwaitAcceptance}},
    JobTransition{kAdmitted, kAllAccepted, kStarting, {kForgetFailures}},
    JobTransition{kAdmitted, kPlacementFailed, kQueued, kPlaceAgain},
    JobTransition{kPreflight, kPlacementFailed, kQueued, kPlaceAgain},
    JobTransition{kStarting, kAllReady, kRunning, {kSettleBase, kSettleOperations}},
    JobTransition{kStarting, kAllHeld, kHeld, {kSettleBase, kSettleOperations}},
    // An agent's answer may be later than what the ranks of another one say.
    JobTransition{kAdmitted, kBaseMissing, kToQueue, {kKillRanks}},
    JobTransition{kStarting, kBaseMissing, kToQueue, {kKillRanks}},
    JobTransition{kRunning, kBaseMissing, kToQueue, {kKillRanks, kFailOperations}},
    JobTransition{kToFailure, kBaseMissing, kToQueue, {kForgetVerdict}},
    JobTransition{kToQueue, kRanksGone, kQueued, kBackToQueue},
    JobTransition{kPausing, kAllHeld, kHeld, {kSettleOperations}},
    JobTransition{kReleasing, kReleased, kFreed, {kCloseEpoch, kSettleOperations, kFollowResume}},
    JobTransition{kReleasing, kSaveFailed, kHeld, {kForgetStop, kFollowResume}},
    JobTransition{kRunning, kTrainingEnded, kToSuccess, {kAwaitExit}},
    JobTransition{kPausing, kTrainingEnded, kToSuccess, {kAwaitExit}},
    JobTransition{kToSuccess, kRanksGone, At(v1::SUCCEEDED), {kFinish}},
    JobTransition{kToFailure, kRanksGone, At(v1::FAILED), {kFinish}},
    JobTransition{kToCancel, kRanksGone, At(v1::CANCELLED), {kFinish}},
};

// A fault that is never retried, or whose budget is spent, is the end.
constexpr std::array kFaults = {
    JobTransition{kQueued, kFault, At(v1::FAILED), {kFinish, kRecordVerdict, kKillRanks}},
    JobTransition{kAdmitted, kFault, kToFailure, {kRecordVerdict, kKillRanks}},
    JobTransition{kPreflight, kFault, kToFailure, {kRecordVerdict, kKillRanks}},
    JobTransition{kStarting, kFault, kToFailure, {kRecordVerdict, kKillRanks}},
    JobTransition{kRunning, kFault, kToFailure, {kRecordVerdict, kKillRanks}},
    JobTransition{kPausing, kFault, kToFailure, {kRecordVerdict, kKillRanks}},
    JobTransition{kHeld, kFault, kToFailure, {kRecordVerdict, kKillRanks}},
};

// Any other fault leads to another epoch: what is left of the old one is killed, and once it is
// gone the job is placed again, on the slots that it had where they are in order. Commands find
// nobody meanwhile: the goal is what the next epoch starts with.
constexpr std::array kRecovery = {
    // An agent's answer may be later than what the ranks of another one say.
    JobTransition{kAdmitted, kRecover, kRecovering, {kKillRanks}},
    JobTransition{kStarting, kRecover, kRecovering, {kKillRanks}},
    JobTransition{kRunning, kRecover, kRecovering, {kKillRanks}},
    JobTransition{kPausing, kRecover, kRecovering, {kKillRanks}},
    JobTransition{kHeld, kRecover, kRecovering, {kKillRanks}},
    JobTransition{kRecovering, kFenced, kAdmitted, {kClearWaiting, kCloseEpoch, kAwaitAcceptance}},
    JobTransition{kRecovering, kNoRoom, kQueued, {kForgetRanks, kFailSaves}},
    JobTransition{kRecovering, kNotRetried, kToFailure, {kRecordVerdict, kKillRanks}},
    JobTransition{kRecovering, kBaseMissing, kToQueue, {kForgetVerdict}},
    JobTransition{kRecovering, kHold, kRecovering, {kAwaitEpoch}},
    JobTransition{kRecovering, kResume, kRecovering, {kAwaitEpoch}},
};

// What users ask for where it differs from state to state, and the deadline.
constexpr std::array kVerbs = {
    JobTransition{kQueued, kHold, kFreed, {kClearWaiting, kSettleOperations}},
    JobTransition{kQueued, kRelease, kFreed, {kClearWaiting, kSettleOperations}},
    JobTransition{kQueued, kResume, kQueued, {kAwaitSlots}},
    JobTransition{kQueued, kCancel, At(v1::CANCELLED), {kFinish}},
    JobTransition{kQueued, kKill, At(v1::CANCELLED), {kFinish}},
    JobTransition{kQueued, kDeadline, At(v1::FAILED), {kFinish, kRecordVerdict}},
    JobTransition{kFreed, kResume, kQueued, {kAwaitSlots}},
    JobTransition{kFreed, kCancel, At(v1::CANCELLED), {kFinish}},
    JobTransition{kFreed, kKill, At(v1::CANCELLED), {kFinish}},
    JobTransition{kFreed, kDeadline, At(v1::FAILED), {kFinish, kRecordVerdict}},
    JobTransition{kRunning, kHold, kPausing, {kCommandHold}},
    JobTransition{kPausing, kResume, kRunning, {kCommandResume, kSettleOperations}},
    JobTransition{kHeld, kResume, kRunning, {kCommandResume, kSettleOperations}},
    JobTransition{kReleasing, kRelease, kReleasing, {kAmendStop}},
    JobTransition{kReleasing, kResume, kReleasing, {kAwaitRelease}},
    JobTransition{kReleasing, kCancel, kToCancel, {kKillUnlessStopping}},
    JobTransition{kReleasing, kKill, kToCancel, {kKillRanks}},
    JobTransition{
        kReleasing, kDeadline, kToFailure, {kRecordVerdict, kAimAtStop, kKillUnlessStopping}},
    JobTransition{kToQueue, kResume, kToQueue, {kAwaitSlots}},
    JobTransition{kToQueue, kRelease, kReleasing, {kKillUnlessStopping}},
    JobTransition{kToQueue, kCancel, kToCancel, {kKillUnlessStopping}},
    JobTransition{kToQueue, kKill, kToCancel, {kKillRanks}},
    JobTransition{
        kToQueue, kDeadline, kToFailure, {kRecordVerdict, kAimAtStop, kKillUnlessStopping}},
    JobTransition{kToSuccess, kKill, kToSuccess, {kKillRanks}},
    JobTransition{kToFailure, kKill, kToFailure, {kKillRanks}},
    JobTransition{kToCancel, kKill, kToCancel, {kKillRanks}},
};

// What should run is compared with what runs: ranks that were found and are taken over, and ranks
// that are nowhere. What was lost of a job that stops anyway is its end.
constexpr JobActions kTakeOver = {kClearWaiting, kCloseEpoch, kFreeOlder, kFollowGoal};
constexpr JobActions kGiveUp = {kCloseEpoch, kForgetRanks, kFailOperations};
constexpr std::array kFound = {
    JobTransition{kQueued, kAdopted, kStarting, kTakeOver},
    JobTransition{kReleasing, kAdopted, kStarting, kTakeOver},
    JobTransition{kFreed, kAdopted, kStarting, kTakeOver},
    JobTransition{kToSuccess, kAdopted, kToSuccess, {kFreeOlder, kStopAgain}},
    JobTransition{kToFailure, kAdopted, kToFailure, {kFreeOlder, kStopAgain}},
    JobTransition{kToCancel, kAdopted, kToCancel, {kFreeOlder, kStopAgain}},
    JobTransition{kToQueue, kAdopted, kStarting, kTakeOver},
    JobTransition{kReleasing, kPhantom, kFreed, kGiveUp},
    JobTransition{kToQueue, kPhantom, kQueued, kBackToQueue},
    JobTransition{kToSuccess, kPhantom, At(v1::SUCCEEDED), {kFinish}},
    JobTransition{kToFailure, kPhantom, At(v1::FAILED), {kFinish}},
    JobTransition{kToCancel, kPhantom, At(v1::CANCELLED), {kFinish}},
};

// The events that nothing raises yet: what they will be for, and their rows. Their actions come
// with the features. ("preemption" leads from every active state to RELEASING: see MakeTable.)
constexpr std::string_view kChecksOfNodes = "checks of nodes before a start";
constexpr std::string_view kDraining = "preemption and draining of nodes";
constexpr std::array kReservedEvents = {
    ReservedEvent{kPreflightDue, kChecksOfNodes},
    ReservedEvent{kPreflightPassed, kChecksOfNodes},
    ReservedEvent{kPreflightExhausted, kChecksOfNodes},
    ReservedEvent{kFencedNewNode, kChecksOfNodes},
    ReservedEvent{kPreempt, kDraining},
    ReservedEvent{kRequeued, kDraining},
};
constexpr std::array kReserved = {
    JobTransition{kAdmitted, kPreflightDue, kPreflight, {}},
    JobTransition{kPreflight, kPreflightPassed, kStarting, {}},
    JobTransition{kPreflight, kPreflightExhausted, kToFailure, {}},
    JobTransition{kRecovering, kFencedNewNode, kPreflight, {}},
    JobTransition{kReleasing, kRequeued, kQueued, {}},
};

constexpr std::array kActive = {kAdmitted, kPreflight, kStarting,  kRunning,
                                kPausing,  kHeld,      kRecovering};
// States whose ranks take no commands yet: pause --hold and resume change the goal alone.
constexpr std::array kGoalOnly = {kAdmitted, kPreflight, kStarting};

std::vector<JobTransition> MakeTable() {
  std::vector<JobTransition> table;
  for (const auto rows :
       {std::span<const JobTransition>(kProgress), std::span<const JobTransition>(kFaults),
        std::span<const JobTransition>(kRecovery), std::span<const JobTransition>(kVerbs),
        std::span<const JobTransition>(kFound), std::span<const JobTransition>(kReserved)}) {
    table.insert(table.end(), rows.begin(), rows.end());
  }
  for (const JobPosition from : kActive) {
    // Ranks that take no commands have made no step that could be saved.
    const JobAction stop = TakesCommands(from.state) ? kCommandStop : kKillUnlessStopping;
    table.push_back({from, kRelease, kReleasing, {stop}});
    table.push_back({from, kPreempt, kReleasing, {}});
    table.push_back({from, kCancel, kToCancel, {stop}});
    table.push_back({from, kKill, kToCancel, {kKillRanks}});
    table.push_back({from, kDeadline, kToFailure, {kRecordVerdict, kAimAtStop, stop}});
    table.push_back({from, kAdopted, kStarting, kTakeOver});
    table.push_back({from, kPhantom, kFreed, kGiveUp});
  }
  for (const JobPosition from : kGoalOnly) {
    table.push_back({from, kHold, from, {kHoldAtStart, kCheckRanks}});
    table.push_back({from, kResume, from, {kRunAtStart, kCheckRanks}});
  }
  return table;
}

}  // namespace

std::span<const JobTransition> JobTable() {
  static const std::vector<JobTransition> table = MakeTable();
  return table;
}

std::span<const ReservedEvent> ReservedEvents() { return kReservedEvents; }

bool IsReserved(JobEvent event) {
  return std::ranges::find(kReservedEvents, event, &ReservedEvent::event) != kReservedEvents.end();
}

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
      "checkpoint missing",
      "released",
      "save failed",
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
      "ranks gone",
      "adopted",
      "phantom"};
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

bool TakesCommands(v1::JobState state) {
  return state == v1::RUNNING || state == v1::PAUSING || state == v1::PAUSED_HELD;
}

std::string AllowedVerbs(JobPosition position, v1::Goal goal) {
  const auto allows = [position](JobEvent event) {
    return JobStateMachine::Allows(position, event);
  };
  std::vector<std::string_view> verbs;
  if (allows(kHold) && (goal != v1::GOAL_HOLD || position == kQueued))
    verbs.push_back("pause");
  else if (allows(kRelease) && goal != v1::GOAL_RELEASE)
    verbs.push_back("pause --release");
  if (allows(kResume) && goal != v1::GOAL_RUN) verbs.push_back("resume");
  if (TakesCommands(position.state)) verbs.push_back("checkpoint");
  if (position.state == v1::RUNNING) verbs.push_back("profile");
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
  return std::ranges::any_of(
      JobTable(), [&](const JobTransition& row) { return row.from == from && row.event == event; });
}

StatusOr<JobTransition> JobStateMachine::Next(JobPosition from, JobEvent event) {
  std::string allowed;
  for (const JobTransition& row : JobTable()) {
    if (row.from != from) continue;
    if (row.event == event) return row;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", EventName(row.event));
  }
  ++num_refused_;
  return base::FailedPrecondition("job is {}: '{}' is not possible there (possible: {})",
                                  PositionName(from), EventName(event),
                                  allowed.empty() ? "nothing" : allowed);
}

}  // namespace mt::daemon
