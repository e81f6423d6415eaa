// Serves the queue: finds slots for waiting jobs, opens an epoch for each that fits, tells the
// agents; says of the others why they wait. Higher priority first, then older; a job that fits the
// cluster but not now holds back those behind it, one that is larger than the cluster does not. Not
// thread-safe (the core's thread).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "daemon/core/ledger.h"
#include "daemon/scheduler/placement.h"

namespace mt::daemon {

class JobKeeper;
class LeaseTable;
class WorkerHub;

class Placer {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    JobKeeper* keeper;
    const LeaseTable* leases;
    const base::Clock* clock;
  };
  explicit Placer(const Parts& parts) : parts_(parts) {}

  void Run();
  // Sends the assignment of this node's ranks (again).
  void SendAssign(const v1::StoredJob& job, const v1::StoredAllocation& allocation);
  // What is taken of each node's slots: node -> slot -> job uid.
  std::map<std::string, std::map<int, std::string>> TakenSlots();

 private:
  std::vector<WaitingJob> Queue();
  std::vector<FleetNode> Fleet();
  void Start(v1::StoredJob& job, const std::vector<PlacedRank>& placed);
  void Wait(v1::StoredJob& job, const std::string& why);

  Parts parts_;
};

}  // namespace mt::daemon
