// Settles what a worker holds against what the ledger says that it holds: what it has and should
// have goes on, what is closed is ordered to stop, what nobody has closed is an orphan, what it
// lacks is gone. Not thread-safe (the core's thread).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "daemon/hub/worker_hub.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class HeldAllocation;
class HeldReport;
class Register;
}  // namespace megatrain::v1

namespace mt::daemon {

class JobKeeper;
class Orphans;
class Reports;
class RestoreGate;

class HeldSettlement {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    JobKeeper* keeper;
    Reports* reports;
    const RestoreGate* restore_gate;
    Orphans* orphans;
  };
  // All parts outlive it.
  explicit HeldSettlement(const Parts& parts) : parts_(parts) {}

  // What the registering agent has in common with the one that was there before.
  struct Former {
    bool same_worker;  // the same process
    bool same_boot;
    // What the agent does not hold does not run: the same boot, or another one of the same machine.
    bool accounted;
  };
  // An allocation that the worker holds.
  void SettleHeld(WorkerSession& session, const v1::HeldAllocation& held);
  // The allocations that the ledger has on this node and the registering worker does not hold.
  void SettleMissing(const v1::Register& hello, const Former& former);
  // Everything that a registered worker holds, as of this report: what is not in it, and not on its
  // way there, is gone.
  void SettleReport(WorkerSession& session, const v1::HeldReport& report);

 private:
  void NoteEnds(v1::StoredAllocation& allocation, const v1::HeldAllocation& held);
  // The row of ranks of the job's open epoch that the ledger has lost; nullptr: they are not that.
  v1::StoredAllocation* TakeBack(const AllocationKey& key, const v1::HeldAllocation& held);
  // Whether the allocation's end says nothing of its job: the ledger is behind.
  bool IsBehind(const AllocationKey& key, const std::set<JobEpoch>& held);
  std::vector<AllocationKey> MissingOf(const std::string& node, const std::set<JobEpoch>& held);

  Parts parts_;
};

}  // namespace mt::daemon
