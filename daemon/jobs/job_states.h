// The states of a job as one table: which event leads from where to where. A pair that is not
// listed is refused and counted. Source of truth for every change of a job's state. Not thread-safe
// (the core's thread); pure. docs/design/control-plane.md#job-states and #reserved say what the
// states mean and which events nothing raises yet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace megatrain::v1 {
enum Goal : int;
enum JobState : int;
class Job;
}  // namespace megatrain::v1

namespace mt::daemon {

enum class JobEvent {
  kPlaced,              // slots for all ranks are reserved
  kAllAccepted,         // every agent took its ranks, no preflight is due
  kPreflightDue,        // every agent took its ranks and has to check its node first
  kPlacementFailed,     // an agent refused, did not answer within P6, failed, or was lost
  kPreflightPassed,     // all nodes passed
  kPreflightExhausted,  // the third preflight failed
  kAllReady,            // every rank is ready or trains, and the goal is to run
  kAllHeld,             // every rank waits for a command
  kHold,                // user command: pause, keep the slots
  kRelease,             // user command: pause, free the slots
  kResume,              // user command
  kPreempt,             // command of the scheduler: for another job, or to drain a node
  kReleased,            // after kRelease: no process is left, whether it saved or not
  kRequeued,            // after kPreempt: likewise
  kRecover,             // a new epoch is needed
  kFenced,              // the old epoch is fenced, and all slots are available
  kFencedNewNode,       // likewise, with a node that has not been checked
  kNoRoom,              // the old epoch is fenced, and slots are missing
  kNotRetried,          // the restart budget is spent, or the cause is never retried
  kTrainingEnded,       // rank 0 reached the run length or an exit condition
  kFault,               // of a rank, its agent or its node, where no restart is possible
  kDeadline,            // resilience.deadline has passed
  kCancel,              // user command
  kKill,                // user command
  kRanksGone,           // in STOPPING: no process of the job is left
};
inline constexpr int kNumJobEvents = 25;

// A state of the table. `stopping_to` is the final state that follows while `state` is STOPPING,
// else JOB_STATE_UNSPECIFIED.
struct JobPosition {
  megatrain::v1::JobState state;
  megatrain::v1::JobState stopping_to;
  bool operator==(const JobPosition&) const = default;
};

// The job's current state and, in STOPPING, the final state that it leads to.
JobPosition PositionOf(const megatrain::v1::Job& job);

// A row of the table.
struct JobTransition {
  JobPosition from;
  JobEvent event;
  JobPosition to;
};

// All rows. A (from, event) pair occurs at most once.
std::span<const JobTransition> JobTransitions();
// The event's name in messages.
std::string_view EventName(JobEvent event);
// The state's name: "STOPPING(FAILED)", "RUNNING".
std::string PositionName(JobPosition position);
// SUCCEEDED, FAILED or CANCELLED.
bool IsFinal(megatrain::v1::JobState state);
// True while the job has ranks, or is getting them, and has not been told to give them up.
bool IsActive(megatrain::v1::JobState state);
// RUNNING, PAUSING or PAUSED_HELD: rank 0 accepts commands, so a save is possible.
bool TakesWords(megatrain::v1::JobState state);
// The commands that a user may give in this state with this goal, for messages: "pause, cancel,
// kill".
std::string AllowedVerbs(JobPosition position, megatrain::v1::Goal goal);

// Applies the table and counts refusals.
class JobStateMachine {
 public:
  // The state that follows. FailedPrecondition, naming the state and the events that it allows, for
  // a pair that is not in the table.
  StatusOr<JobPosition> Next(JobPosition from, JobEvent event);
  // True where the table lists the pair. Counts nothing.
  static bool Allows(JobPosition from, JobEvent event);
  // Number of refused pairs, for /metrics.
  int64_t num_refused() const { return num_refused_; }

 private:
  int64_t num_refused_ = 0;
};

}  // namespace mt::daemon
