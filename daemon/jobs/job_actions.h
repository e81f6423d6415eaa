// What follows from a change of a job's state: each row of the table in job_states.cc lists its
// actions, and daemon/keeper carries them out in that order. Pure; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>

namespace mt::daemon {

enum class JobAction {
  // The queue and the placement.
  kClearWaiting,     // the condition "Waiting" goes
  kAwaitSlots,       // the operation says that it waits for slots
  kAwaitRelease,     // the operation says that it waits for the release that is under way
  kAwaitEpoch,       // the operation says that it waits for the ranks of the next epoch
  kAwaitAcceptance,  // the agents have P6 to answer; whether ranks start held is decided here
  kForgetFailures,   // the placements that failed in a row do not count any more
  kFreeSlots,        // kills what the agents may have started of a placement that failed
  kForgetRanks,      // the job has no ranks until it is placed again
  kRetryLater,       // it is placed again after R2
  kAwaitBase,        // the condition "Waiting" names the missing checkpoint; placed again after R2
  kSettleBase,       // the start has found its checkpoint: what a user accepted instead is over
  // Commands to ranks that take them.
  kCommandHold,    // rank 0 is told to hold
  kCommandResume,  // rank 0 is told to go on
  kCommandStop,  // rank 0 is told to stop, with a save where one is asked for (P5), else within P1
  kForgetStop,   // the stop has been answered: its ranks wait instead of ending
  kAmendStop,  // the newest pause says whether a stop that is under way may lose what is not saved
  // Goals of ranks that take no commands yet.
  kHoldAtStart,  // they hold as soon as they are ready
  kRunAtStart,   // what would make them hold is taken back
  kCheckRanks,   // the ranks may be where the goal wants them already
  // The end.
  kRecordVerdict,       // cause, failed rank and its last log lines, with an event
  kForgetVerdict,       // they go: what they told was the consequence of something else
  kAimAtStop,           // the goal is to stop
  kKillUnlessStopping,  // nothing is there to be saved: kills, unless a stop or a kill is under way
  kKillRanks,           // kills; the epoch ends at once where no rank is left
  kAwaitExit,           // the ranks exit by themselves, within P1
  kCloseEpoch,          // commands, rendezvous and conditions of the epoch go
  kFinish,              // the job has ended, with all of its operations, and its epoch is closed
  // Ranks that were found, or are nowhere.
  kFreeOlder,   // kills what is left of the job's earlier epochs
  kFollowGoal,  // tells the ranks what the goal wants, where they do otherwise
  kStopAgain,   // the stop or kill that is under way is sent to them
  // Operations.
  kSettleOperations,  // those that the new state fulfils have succeeded
  kFollowResume,      // a resume that came meanwhile takes effect
  kFailOperations,    // those that are open have failed: the ranks that they need are lost
  kFailSaves,         // saves that were asked for have failed: nobody knows when there are ranks
};
inline constexpr int kNumJobActions = 34;

// "close the epoch"; for tests and documents.
std::string_view ActionName(JobAction action);

// The actions of one row, in order.
class JobActions {
 public:
  static constexpr size_t kMost = 5;

  constexpr JobActions() = default;
  constexpr JobActions(std::initializer_list<JobAction> actions) : size_(actions.size()) {
    size_t i = 0;
    for (const JobAction action : actions) actions_[i++] = action;
  }
  constexpr const JobAction* begin() const { return actions_.data(); }
  constexpr const JobAction* end() const { return actions_.data() + size_; }
  constexpr bool empty() const { return size_ == 0; }

 private:
  std::array<JobAction, kMost> actions_{};
  size_t size_ = 0;
};

}  // namespace mt::daemon
