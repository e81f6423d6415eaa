// Settles what a worker holds against what the ledger says that it holds: what it has and should
// have goes on, what it should not have is ordered to stop, what it lacks is gone. Not thread-safe
// (the core's thread).
#pragma once

#include "daemon/hub/worker_hub.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class HeldAllocation;
class Register;
}  // namespace megatrain::v1

namespace mt::daemon {

class JobKeeper;
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

 private:
  Parts parts_;
};

}  // namespace mt::daemon
