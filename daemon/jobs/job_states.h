// The states of a job as one table: which event leads from where to where, and what is to be done
// then. A pair that is not listed is refused and counted. This is the source of truth for every
// change of a job's state. Everything here is pure; JobStateMachine counts, so it belongs to one
// thread (the core's). docs/design/control-plane.md#job-states and #reserved say what the states
// mean and which events nothing raises yet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/jobs/job_actions.h"

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
  kAllReady,            // every rank is ready, or trains; the goal is to run
  kAllHeld,             // every rank waits for a command
  kHold,                // a user pauses the job; it keeps its slots
  kRelease,             // a user pauses the job; its slots become free
  kResume,              // a user lets the job go on
  kPreempt,             // the scheduler takes the slots for another job, or drains a node
  kBaseMissing,         // the ranks did not find the checkpoint to go on from, or their data
  kReleased,            // after kRelease: saved or not, no process is left
  kSaveFailed,          // after kRelease: the save failed, and every rank waits
  kRequeued,            // after kPreempt: likewise
  kRecover,             // a fault ends the epoch, and another one follows
  kFenced,              // nothing of the old epoch is left, and slots for all ranks are reserved
  kFencedNewNode,       // likewise, with a node that has not been checked
  kNoRoom,              // nothing of the old epoch is left, and slots are missing
  kNotRetried,          // while the old epoch ends: what was behind the fault is never retried
  kTrainingEnded,       // rank 0: the run length, or a condition to exit, was reached
  kFault,               // a rank, its agent or its node failed, and no other epoch follows
  kDeadline,            // resilience.deadline is over
  kCancel,              // a user ends the job
  kKill,                // a user ends the job's processes at once
  kRanksGone,           // in STOPPING: no process of the job is left
  kAdopted,             // an epoch that another store may have given was found whole on its nodes
  kPhantom,             // of the ranks that the job is said to have none, or not all, are on a node
};
inline constexpr int kNumJobEvents = 29;

// A state of the table. `stopping_to` is the state that follows while `state` is STOPPING: a final
// one or, where its ranks end before it is placed again, QUEUED; else JOB_STATE_UNSPECIFIED.
struct JobPosition {
  megatrain::v1::JobState state;
  megatrain::v1::JobState stopping_to;
  bool operator==(const JobPosition&) const = default;
};

// The job's current state and, in STOPPING, the final state that it leads to.
JobPosition PositionOf(const megatrain::v1::Job& job);

// One row of the table. The actions follow once the job is at `to`; a row of a reserved event gets
// them with the feature that will raise it.
struct JobTransition {
  JobPosition from;
  JobEvent event;
  JobPosition to;
  JobActions actions;
};

std::span<const JobTransition> JobTable();

// An event that nothing raises yet, and the feature that will. PREFLIGHT, to which only such events
// lead, is not met before.
struct ReservedEvent {
  JobEvent event;
  std::string_view feature;
};
std::span<const ReservedEvent> ReservedEvents();
bool IsReserved(JobEvent event);

std::string_view EventName(JobEvent event);
// The state's name: "STOPPING(FAILED)", "RUNNING".
std::string PositionName(JobPosition position);
// SUCCEEDED, FAILED or CANCELLED.
bool IsFinal(megatrain::v1::JobState state);
// True where the job has, or is getting, ranks, and was not told to give them up.
bool IsActive(megatrain::v1::JobState state);
// True in RUNNING, PAUSING and PAUSED_HELD: rank 0 takes commands, and a save is possible.
bool TakesCommands(megatrain::v1::JobState state);
// What a user may do with a job there: "pause, cancel, kill".
std::string AllowedVerbs(JobPosition position, megatrain::v1::Goal goal);

// Looks rows up and counts the pairs that the table does not list.
class JobStateMachine {
 public:
  // The row of the pair. FailedPrecondition, with the state and the events that it allows, for a
  // pair that is not in the table.
  StatusOr<JobTransition> Next(JobPosition from, JobEvent event);
  // Whether the table lists the pair; counts nothing.
  static bool Allows(JobPosition from, JobEvent event);
  // Number of refused pairs, for /metrics.
  int64_t num_refused() const { return num_refused_; }

 private:
  int64_t num_refused_ = 0;
};

}  // namespace mt::daemon
