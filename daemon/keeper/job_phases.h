// How long a job may stay in a phase before the coordinator decides: a start that does not come to
// an end; a pause whose ranks do not hold; a phantom, a job that is said to have ranks and has
// none, or not all, on any node; and ranks that hold where the job is to run, or train where it is
// to hold. (Placements and stops have their deadlines in job_placement.h and job_teardown.h.) Not
// thread-safe (the core's thread).
#pragma once

#include <chrono>

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

class JobAdoption;

class JobPhases {
 public:
  // The adoption outlives it. phantom_after: P7.
  JobPhases(const KeeperTools& tools, JobAdoption* adoption,
            std::chrono::milliseconds phantom_after)
      : tools_(tools), adoption_(adoption), phantom_after_(phantom_after) {}

  // Looks at one job. True where it was moved.
  bool Tick(v1::StoredJob& job);
  // --- An action of rows (daemon/jobs/job_actions.h).
  void FailOperations(v1::StoredJob& job);

 private:
  bool IsPhantom(const v1::StoredJob& job);
  void EndPhantom(v1::StoredJob& job);
  // Kills what is left of the job's epoch.
  void EndRest(v1::StoredJob& job);
  bool IsAgainstGoal(const v1::StoredJob& job);
  bool StartIsOver(const v1::StoredJob& job);
  void FailStart(v1::StoredJob& job);
  bool HoldIsOver(const v1::StoredJob& job);
  // The pause has failed: the job is to run again.
  void WithdrawHold(v1::StoredJob& job);

  KeeperTools tools_;
  JobAdoption* adoption_;
  const std::chrono::milliseconds phantom_after_;
};

}  // namespace mt::daemon
