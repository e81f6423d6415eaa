// Jobs whose nodes fall silent: a lost node keeps its ranks, its slots and its job until it is
// heard again or an operator declares it dead. Not thread-safe (the core's thread).
#pragma once

#include <set>
#include <string>

#include "daemon/keeper/keeper_tools.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

class JobPlacement;
class JobTeardown;

class JobNodes {
 public:
  // Both outlive it.
  JobNodes(const KeeperTools& tools, JobPlacement* placement, JobTeardown* teardown)
      : tools_(tools), placement_(placement), teardown_(teardown) {}

  // The lease of the node is over (L1). `placements` false: what it was placed and has not answered
  // is waited for (restore_gate.h).
  void Lost(const std::string& node, bool placements);
  // There was no heartbeat for a while (`silent`), or there is one again.
  void Silent(const std::string& node, bool silent);
  // Another machine has the node's name; whether this allocation's ranks run on the one before
  // nobody knows. As if the node were lost, until that machine is heard or declared dead.
  void LeaveBehind(v1::StoredAllocation& allocation);
  bool HasLeftBehind(const std::string& node);
  // An operator says that nothing runs there any more: on the node, or only of what was left
  // behind.
  enum class Which { kAll, kLeftBehind };
  void Dead(const std::string& node, const Order& order, Which which);
  // The node, which holds nothing, is not known any more.
  void Forgotten(const std::string& node) { silent_.erase(node); }
  // The node's agent is back and holds this allocation of the job's open epoch.
  void AllocationHeld(v1::StoredJob& job, v1::StoredAllocation& allocation);
  // Sends again what the job owes this node: commands, or a kill.
  void Remind(v1::StoredJob& job, v1::StoredAllocation& allocation);
  // Sets or clears the condition NodeUnreachable.
  void ShowReachability(v1::StoredJob& job);

 private:
  // The ranks of the allocation may run or not.
  void Unreachable(v1::StoredAllocation& allocation);
  void ReactToLoss(v1::StoredJob& job, const std::string& node);
  void ReactToDeath(v1::StoredJob& job, const std::string& node, const Order& order);

  KeeperTools tools_;
  JobPlacement* placement_;
  JobTeardown* teardown_;
  std::set<std::string> silent_;  // nodes without a heartbeat for a while
};

}  // namespace mt::daemon
