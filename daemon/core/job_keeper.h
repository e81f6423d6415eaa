// Moves jobs through their states: applies the table, keeps what follows from each change (cause,
// conditions, operations, allocations, orders to workers) together. Everyone else reports facts to
// it. Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "daemon/core/ledger.h"
#include "daemon/jobs/job_states.h"
#include "daemon/jobs/verdict.h"

namespace megatrain::v1 {
enum AllocationState : int;
class StopOrder;
class TrainingEnded;
}  // namespace megatrain::v1

namespace mt::daemon {

class WorkerHub;

class JobKeeper {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    KeyValues* rendezvous;
    const base::Clock* clock;
  };
  explicit JobKeeper(const Parts& parts) : parts_(parts) {}

  // After a restart: deadlines start anew.
  void Recover();
  // Deadlines: placement answers (P6), stop grace (P5), ranks that should be gone (P3).
  void Tick();

  // --- Facts. Each may end with the job in another state.
  void Placed(v1::StoredJob& job);
  void AllocationAccepted(v1::StoredJob& job, v1::StoredAllocation& allocation);
  void AllocationRefused(v1::StoredJob& job, const AllocationKey& key, std::string_view why);
  void RankFailed(v1::StoredJob& job, const std::string& node, const Verdict& verdict);
  // Rank states of the job changed: it may be RUNNING now. Steps prove it (`training`) even where
  // reports are late.
  void RanksMoved(v1::StoredJob& job, bool training);
  void TrainingEnded(v1::StoredJob& job, const v1::TrainingEnded& ended);
  // Nothing of the allocation is left on its node. `why` says how that came where nobody had asked
  // for it.
  void AllocationGone(const AllocationKey& key, std::string_view why);
  void NodeLost(const std::string& node);
  void SetNodeReachable(const std::string& node, bool reachable);
  void CommandAnswered(const std::string& command_id, const std::string& node, bool accepted,
                       const std::string& message);

  // --- Orders.
  void Fail(v1::StoredJob& job, const Verdict& verdict);
  // Wants a position that allows it.
  void Cancel(v1::StoredJob& job, const v1::StopOrder& order);
  // (Re)sends what the job owes this node: the word to stop, or a kill.
  void RemindNode(v1::StoredJob& job, v1::StoredAllocation& allocation);
  void SendKill(const JobEpoch& job, const std::string& node, std::string_view reason);
  bool MoveAllocation(v1::StoredAllocation& allocation, v1::AllocationState to);

  // Before this time a job whose placement failed is not placed again.
  base::MonotonicTime RetryAt(const std::string& uid) const;
  bool CanCancel(const v1::StoredJob& job) const;
  int64_t num_refused() const { return machine_.num_refused(); }

 private:
  // What need not survive a restart.
  struct Runtime {
    base::MonotonicTime placement_deadline{};  // ADMITTED
    base::MonotonicTime stop_deadline{};       // STOPPING without a kill: then one is sent
    base::MonotonicTime kill_again{};          // STOPPING with a kill
    base::MonotonicTime retry_at{};
    std::set<std::string> kill_acked;  // nodes: what they report from now on is the kill's doing
    bool killing = false;
  };

  bool Apply(v1::StoredJob& job, JobEvent event, std::string_view why);
  void PlacementFailed(v1::StoredJob& job, std::string_view why);
  void KillAll(v1::StoredJob& job, std::string_view reason);
  void SendStopWord(v1::StoredJob& job);
  void FinishIfGone(v1::StoredJob& job);
  void Finished(v1::StoredJob& job);
  void ReactToLoss(v1::StoredJob& job, const std::string& node);
  void SetVerdict(v1::StoredJob& job, const Verdict& verdict);

  Parts parts_;
  JobStateMachine machine_;
  std::map<std::string, Runtime> runtime_;  // live jobs, by uid
};

// Sets the condition, or its message; the time stays that of the first.
void SetCondition(v1::Job* job, std::string_view type, std::string_view message, int64_t now_us);
// True where it was there.
bool ClearCondition(v1::Job* job, std::string_view type);

}  // namespace mt::daemon
