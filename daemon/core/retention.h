// What the store keeps no longer (A3), and the time by which that is judged: request ids, finished
// operations, events, ended jobs and nodes that are gone. The tombstones of jobs stay for ever.
// Records the time in the store, so that the next start can tell whether its wall clock may be
// believed (daemon/membership/wall_trust.h). Not thread-safe (the core's thread).
#pragma once

#include "common/base/clock.h"

namespace mt::daemon {

class LeaseTable;
class Ledger;
class NodeRemoval;
class OwnTime;

class Retention {
 public:
  struct Parts {
    Ledger* ledger;
    LeaseTable* leases;
    NodeRemoval* removal;
    OwnTime* time;
  };
  // All parts outlive it.
  explicit Retention(const Parts& parts) : parts_(parts) {}

  // Compares the wall clock with what the store recorded; to be called once, when it is loaded and
  // before anything asks for the time.
  void Start();
  void Tick();

 private:
  void Record();
  // The time to reckon by has jumped: no deadline is to be cut by that, after the next start
  // either.
  void LeaveOut(std::chrono::microseconds jump);
  // True where more is to be deleted than one round should.
  bool DeleteOldJobs(base::WallTime before);
  // Writes when nodes were last heard, which is changed at every heartbeat but seldom written.
  void RecordHeartbeats();

  Parts parts_;
  base::MonotonicTime next_record_{};
  base::MonotonicTime next_purge_{};
};

}  // namespace mt::daemon
