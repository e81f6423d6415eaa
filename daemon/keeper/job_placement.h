// The way into an epoch: from the placement over the agents' answers to ranks that train or hold.
// Which slots a job gets is decided by Placer. Not thread-safe (the core's thread).
#pragma once

#include <string_view>

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

class JobTeardown;

class JobPlacement {
 public:
  // The teardown outlives it.
  JobPlacement(const KeeperTools& tools, JobTeardown* teardown)
      : tools_(tools), teardown_(teardown) {}

  // --- Actions of rows (daemon/jobs/job_actions.h).
  void AwaitAcceptance(v1::StoredJob& job);
  void FreeSlots(v1::StoredJob& job);
  void RetryLater(v1::StoredJob& job);
  void ForgetFailures(v1::StoredJob& job);

  // --- Facts. Each may end with the job in another state.
  // Slots for all ranks are reserved, in a new epoch.
  void Placed(v1::StoredJob& job);
  void AllocationAccepted(v1::StoredJob& job, v1::StoredAllocation& allocation);
  void AllocationRefused(v1::StoredJob& job, const AllocationKey& key, std::string_view why);
  // The job is ADMITTED, and one of its nodes will not start ranks.
  void Failed(v1::StoredJob& job, std::string_view why);
  // Rank states of the job changed: it may be RUNNING, or held, now. Steps prove that it trains
  // (`training`) even where reports are late.
  void RanksMoved(v1::StoredJob& job, bool training);
  // Whether the job waits for agents that have not answered within P6.
  bool IsOverdue(const v1::Job& job) const;
  void Overdue(v1::StoredJob& job);
  // After a restart: what is left of the delay before another epoch (R2).
  void Recover(v1::StoredJob& job);

 private:
  void MoveToHeld(v1::StoredJob& job);
  void StartedTraining(v1::StoredJob& job);

  KeeperTools tools_;
  JobTeardown* teardown_;
};

}  // namespace mt::daemon
