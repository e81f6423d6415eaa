// Adoption: the ledger takes over an epoch of a job that runs on nodes and that another store may
// have given. Which ranks there are is found out by daemon/workers/orphans.h. Not thread-safe (the
// core's thread).
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class RankStatus;
}

namespace mt::daemon {

class JobPlacement;
class JobTeardown;
class JobVerbs;

class JobAdoption {
 public:
  struct Parts {
    JobPlacement* placement;
    JobTeardown* teardown;
    JobVerbs* verbs;
  };
  // All outlive it.
  JobAdoption(const KeeperTools& tools, const Parts& parts) : tools_(tools), parts_(parts) {}

  // The job goes on with these ranks, as their agents last described them: all ranks of the world,
  // in order, with node and slot; their allocations are ORPHANED. The epoch is at or above the
  // job's. A job that is to hold, or whose ranks all hold, holds; one that stops goes on stopping;
  // any other runs. `order` names the user who asked for it, if one did.
  void Adopt(v1::StoredJob& job, int64_t epoch, const std::vector<v1::RankStatus>& ranks,
             const Order& order);

  // --- Actions of rows (daemon/jobs/job_actions.h).
  void FreeOlder(v1::StoredJob& job);
  void FollowGoal(v1::StoredJob& job, const Why& why);

 private:
  void TakeRanks(v1::StoredJob& job, int64_t epoch, const std::vector<v1::RankStatus>& ranks);
  void EndReleases(v1::StoredJob& job);

  KeeperTools tools_;
  Parts parts_;
};

}  // namespace mt::daemon
