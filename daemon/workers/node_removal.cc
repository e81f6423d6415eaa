// What makes a node a ghost, and where it is known.
#include "daemon/workers/node_removal.h"

#include <vector>

#include "common/base/log.h"
#include "common/rpc/reason.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/membership/lease_table.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

Status NodeRemoval::CheckGone(const std::string& node) const {
  if (parts_.ledger->FindWorker(node) == nullptr) {
    return rpc::WithReason(base::NotFound("no node '{}' (mtctl get nodes lists them)", node),
                           rpc::reason::kUnknownNode);
  }
  const v1::NodeState state = parts_.leases->StateOf(node);
  if ((state != v1::NODE_LOST && state != v1::NODE_DEAD) || parts_.hub->IsConnected(node)) {
    return rpc::WithReason(
        base::FailedPrecondition("node {} is {}: stop its mt-worker first; it can be deleted once "
                                 "it is NODE_LOST",
                                 node, v1::NodeState_Name(state)),
        rpc::reason::kNodeAlive);
  }
  const auto held = parts_.ledger->AllocationsOnNode(node);
  if (held.empty()) return OkStatus();
  return rpc::WithReason(
      base::FailedPrecondition("node {} holds ranks of job {}: if nothing runs there any more, say "
                               "so first (mtctl node declare-dead {})",
                               node, held.front()->job_uid(), node),
      rpc::reason::kNodeInUse);
}

void NodeRemoval::Remove(const std::string& node, const std::string& why, const Order& order) {
  parts_.ledger->AddEvent({.type = "NodeDeleted",
                           .message = why,
                           .node = node,
                           .actor = order.actor,
                           .reason = order.reason});
  log::Info("node deleted", {{"node", node}, {"why", why}});
  parts_.keeper->nodes().Forgotten(node);
  parts_.leases->Forget(node);
  parts_.ledger->EraseWorker(node);
}

Status NodeRemoval::Delete(const std::string& node, const Order& order) {
  RETURN_IF_ERROR(CheckGone(node));
  Remove(node, fmt::format("deleted by {}", order.actor), order);
  return OkStatus();
}

void NodeRemoval::DeleteGhosts(base::WallTime before) {
  const int64_t before_us = base::ToUnixMicros(before);
  std::vector<std::string> ghosts;
  for (const v1::StoredWorker* worker : parts_.ledger->Workers()) {
    const v1::Node& node = worker->node();
    if (node.last_heartbeat_us() < before_us && CheckGone(node.name()).ok())
      ghosts.push_back(node.name());
  }
  for (const std::string& node : ghosts)
    Remove(node, "it was not heard of for long and held nothing", {.actor = "coordinator"});
}

}  // namespace mt::daemon
