// The states of a job as one table: which event leads from where to where. A pair that is not
// listed is refused and counted. Source of truth for every change of a job's state. Not thread-safe
// (the core's thread); pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace megatrain::v1 {
enum JobState : int;
}

namespace mt::daemon {

enum class JobEvent {
  kPlaced,           // slots for all ranks are reserved
  kAllAccepted,      // every agent took its ranks
  kPlacementFailed,  // an agent refused, did not answer (P6) or was lost
  kAllReady,         // every rank is ready, or trains
  kTrainingEnded,    // rank 0: the run length was reached
  kFault,            // a rank, its agent or its node failed
  kCancel,           // a user's word
  kRanksGone,        // no process of the job is left
};
inline constexpr int kNumJobEvents = 8;

// `stopping_to` is the final state ahead while `state` is STOPPING, else JOB_STATE_UNSPECIFIED.
struct JobPosition {
  megatrain::v1::JobState state;
  megatrain::v1::JobState stopping_to;
  bool operator==(const JobPosition&) const = default;
};

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
// ADMITTED, STARTING or RUNNING: it holds slots and was not told to stop.
bool IsActive(megatrain::v1::JobState state);
// What a user may do with a job there: "cancel", or "nothing".
std::string_view AllowedVerbs(megatrain::v1::JobState state);

class JobStateMachine {
 public:
  // FailedPrecondition, with the state and the events that it allows, for a pair that is not in the
  // table.
  StatusOr<JobPosition> Next(JobPosition from, JobEvent event);
  int64_t num_refused() const { return num_refused_; }

 private:
  int64_t num_refused_ = 0;
};

}  // namespace mt::daemon
