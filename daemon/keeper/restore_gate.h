// After a declared restore nothing is placed until every node that the store knows has said what
// runs there, was declared dead or deleted, or L7 is over: a job that waits in the restored store
// may have been placed since the backup (docs/design/control-plane.md#terms). The time counts from
// the restore, and anew from each start. Not thread-safe (the core's thread).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace mt::daemon {

class LeaseTable;
class Ledger;

class RestoreGate {
 public:
  struct Parts {
    Ledger* ledger;
    const LeaseTable* leases;
    const base::Clock* clock;
  };
  // All parts outlive it.
  explicit RestoreGate(const Parts& parts) : parts_(parts) {}

  // A restore was declared, or the coordinator starts while one is not settled: from now on the
  // nodes that the store knows are awaited.
  void Close();
  // The node has registered.
  void Answered(const std::string& node) { awaited_.erase(node); }
  bool IsOpen() const;
  // Looks whether it is settled; what has become of it is recorded, and an event.
  void Tick();
  // Why nothing is placed; names the nodes that are awaited.
  std::string Why() const;

 private:
  void Settle(const std::string& why);

  Parts parts_;
  std::set<std::string> awaited_;
  base::MonotonicTime until_{};
};

}  // namespace mt::daemon
