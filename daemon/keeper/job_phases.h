// How long a job may stay in a phase before the coordinator decides: a start that does not come to
// an end, and a phantom, a job that is said to have ranks and has none on any node. (Placements
// and stops have their deadlines in job_placement.h and job_teardown.h.) Not thread-safe (the
// core's thread).
#pragma once

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

class JobPhases {
 public:
  explicit JobPhases(const KeeperTools& tools) : tools_(tools) {}

  // Looks at one job. True where it was moved.
  bool Tick(v1::StoredJob& job);
  // --- An action of rows (daemon/jobs/job_actions.h).
  void FailOperations(v1::StoredJob& job);

 private:
  bool IsPhantom(const v1::StoredJob& job);
  void EndPhantom(v1::StoredJob& job);
  bool StartIsOver(const v1::StoredJob& job);
  void FailStart(v1::StoredJob& job);

  KeeperTools tools_;
};

}  // namespace mt::daemon
