// Takes nodes out of the store that are gone for good: when a user says so, or when nothing was
// heard of them for long (A3). Only a node that is lost or dead and holds nothing is taken out; one
// that is alive after all registers as a new one. Not thread-safe (the core's thread).
#pragma once

#include <string>

#include "common/base/clock.h"
#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

class JobKeeper;
class LeaseTable;
class WorkerHub;

class NodeRemoval {
 public:
  struct Parts {
    Ledger* ledger;
    LeaseTable* leases;
    WorkerHub* hub;
    JobKeeper* keeper;
  };
  // All parts outlive it.
  explicit NodeRemoval(const Parts& parts) : parts_(parts) {}

  // NotFound (UNKNOWN_NODE); FailedPrecondition: it is heard (NODE_ALIVE), or ranks hold its slots
  // (NODE_IN_USE).
  Status Delete(const std::string& node, const Order& order);
  // Deletes the nodes of which nothing was heard since `before`.
  void DeleteGhosts(base::WallTime before);

 private:
  Status CheckGone(const std::string& node) const;
  void Remove(const std::string& node, const std::string& why, const Order& order);

  Parts parts_;
};

}  // namespace mt::daemon
