// Serves the queue: finds slots for waiting jobs, opens an epoch for each that fits, tells the
// agents, and says of the others why they wait. Jobs of higher priority come first, then older
// ones; a job that fits the cluster but not now holds back those behind it, one that is larger than
// the cluster does not. One that waits for its checkpoint stands back behind all others. Before the
// queue come jobs that a fault has cost their ranks: they get the slots that they had, others where
// these are not in order, and go to the head of the queue where both do not suffice. Not
// thread-safe (the core's thread).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/spec/fault.h"
#include "daemon/ledger/ledger.h"
#include "daemon/scheduler/placement.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::daemon {

class Authority;
class JobKeeper;
class LeaseTable;
class RestoreGate;
class RollCall;
class WorkerHub;

class Placer {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    JobKeeper* keeper;
    const LeaseTable* leases;
    const Authority* authority;
    const RestoreGate* restore_gate;
    const RollCall* roll_call;
    const base::Clock* clock;
  };
  // All parts outlive it.
  explicit Placer(const Parts& parts) : parts_(parts) {}

  // Places what can be placed now; called whenever slots or the queue may have changed. Nothing
  // while no orders are given; nothing while a restore is not settled, which the jobs' reason for
  // waiting says.
  void Run();
  // Sends the assignment of this node's ranks (again).
  void SendAssign(const v1::StoredJob& job, const v1::StoredAllocation& allocation);
  // The faults for which a job of device auto is refused at once, with the nodes as they are now.
  spec::Faults FaultsNow(const v1::JobSpec& spec);
  // What a job of this (completed) spec would find if it were submitted now.
  struct Prospect {
    bool starts = false;  // it would be placed at once
    std::string why;      // else what it would wait for
    int device = 0;       // DeviceType, of its slots
  };
  Prospect ProspectOf(const v1::JobSpec& spec);
  // The slots of each node that are taken: node -> slot -> job uid. A job that recovers keeps those
  // that it had; of `except`, a job's uid, they count as free.
  std::map<std::string, std::map<int, std::string>> TakenSlots(std::string_view except = {});
  // The nodes that accept work, with their slots; `except` as above.
  std::vector<FleetNode> Fleet(std::string_view except = {});

 private:
  // Jobs whose ranks were lost, before all that wait.
  void RunRecovering();
  // Whether nothing may be placed for this one now; then it waits, with the reason.
  bool IsHeldBack(v1::StoredJob& job);
  std::vector<WaitingJob> Queue();
  // The job that holds back one of this priority that is submitted now; empty: none does.
  std::string AheadOf(int64_t priority, const std::vector<FleetNode>& fleet);
  // A node with orphaned ranks of a later epoch of the job; empty: there is none.
  std::string LaterOrphan(const std::string& uid) const;
  // Decides what device auto becomes with the fleet as it is. False: the job failed, since GPUs
  // cannot run it.
  bool ChooseDevice(v1::StoredJob& job, const std::vector<FleetNode>& fleet, WaitingJob* waiting);
  void FailFor(v1::StoredJob& job, const spec::Faults& faults, const char* prefix);
  void Start(v1::StoredJob& job, const std::vector<PlacedRank>& placed, bool on_gpus);
  // The job's next epoch; 0, with the reason why it waits, where the term has none left for it.
  int64_t EpochFor(v1::StoredJob& job);
  void Wait(v1::StoredJob& job, const std::string& why);

  Parts parts_;
};

}  // namespace mt::daemon
