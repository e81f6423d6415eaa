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
  kPreflightDue,        // every agent took its ranks, and is to check its node first
  kPlacementFailed,     // an agent refused, did not answer (P6), failed or was lost
  kPreflightPassed,     // all nodes are sound
  kPreflightExhausted,  // the third preflight failed
  kAllReady,            // every rank is ready, or trains; the goal is to run
  kAllHeld,             // every rank waits for a word
  kHold,                // a user's word: pause, keep the slots
  kRelease,             // a user's word: pause, free the slots
  kResume,              // a user's word
  kPreempt,             // the scheduler's: for another job, or to drain a node
  kReleased,            // after kRelease: saved or not, no process is left
  kRequeued,            // after kPreempt: likewise
  kRecover,             // a new epoch is needed
  kFenced,              // the old epoch is closed, slots are complete
  kFencedNewNode,       // likewise, with a node that was not checked yet
  kNoRoom,              // the old epoch is closed, slots do not suffice
  kNotRetried,          // the restart budget is spent, or the cause is never retried
  kTrainingEnded,       // rank 0: the run length, or a condition to exit, was reached
  kFault,               // of a rank, its agent or its node, where no restart is possible
  kDeadline,            // resilience.deadline is over
  kCancel,              // a user's word
  kKill,                // a user's word
  kRanksGone,           // in STOPPING: no process of the job is left
};
inline constexpr int kNumJobEvents = 25;

// `stopping_to` is the final state ahead while `state` is STOPPING, else JOB_STATE_UNSPECIFIED.
struct JobPosition {
  megatrain::v1::JobState state;
  megatrain::v1::JobState stopping_to;
  bool operator==(const JobPosition&) const = default;
};

JobPosition PositionOf(const megatrain::v1::Job& job);

struct JobTransition {
  JobPosition from;
  JobEvent event;
  JobPosition to;
};

std::span<const JobTransition> JobTransitions();
std::string_view EventName(JobEvent event);
// "STOPPING(FAILED)", "RUNNING".
std::string PositionName(JobPosition position);
bool IsFinal(megatrain::v1::JobState state);
// It has, or is getting, ranks, and was not told to give them up.
bool IsActive(megatrain::v1::JobState state);
// RUNNING, PAUSING or PAUSED_HELD: rank 0 takes words, and a save is possible.
bool TakesWords(megatrain::v1::JobState state);
// What a user may do with a job there: "pause, cancel, kill".
std::string AllowedVerbs(JobPosition position, megatrain::v1::Goal goal);

class JobStateMachine {
 public:
  // FailedPrecondition, with the state and the events that it allows, for a pair that is not in the
  // table.
  StatusOr<JobPosition> Next(JobPosition from, JobEvent event);
  // Whether the table lists the pair; counts nothing.
  static bool Allows(JobPosition from, JobEvent event);
  int64_t num_refused() const { return num_refused_; }

 private:
  int64_t num_refused_ = 0;
};

}  // namespace mt::daemon
