// Nodes as their workers registered them, with state and slots as of now.
#include "daemon/api/nodes_api.h"

#include "daemon/api/request_book.h"
#include "daemon/authority/authority.h"
#include "daemon/keeper/placer.h"
#include "daemon/membership/lease_table.h"
#include "daemon/workers/node_removal.h"
#include "daemon/workers/sessions.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

void NodesApi::ShowNode(const v1::StoredWorker& worker, v1::Node* node) {
  *node = worker.node();
  node->set_state(parts_.leases->StateOf(node->name()));
}

void NodesApi::List(v1::ListNodesResponse* response) {
  auto taken = parts_.placer->TakenSlots();
  for (const v1::StoredWorker* worker : parts_.ledger->Workers()) {
    v1::Node* node = response->add_nodes();
    ShowNode(*worker, node);
    const std::map<int, std::string>& slots = taken[node->name()];
    for (v1::Slot& slot : *node->mutable_slots()) {
      const auto found = slots.find(slot.index());
      if (found != slots.end()) slot.set_job_uid(found->second);
    }
  }
}

Status NodesApi::DeclareDead(const v1::DeclareDeadRequest& request, std::string_view actor,
                             v1::Node* response) {
  RETURN_IF_ERROR(parts_.authority->CheckOrders());
  RETURN_IF_ERROR(RequestBook::CheckReason(request.reason()));
  RETURN_IF_ERROR(
      parts_.sessions->DeclareDead(request.node(), OrderOf(actor, request.reason(), "")));
  ShowNode(*parts_.ledger->FindWorker(request.node()), response);
  return OkStatus();
}

Status NodesApi::Delete(const v1::DeleteNodeRequest& request, std::string_view actor) {
  RETURN_IF_ERROR(parts_.authority->CheckOrders());
  RETURN_IF_ERROR(RequestBook::CheckReason(request.reason()));
  return parts_.removal->Delete(request.node(), OrderOf(actor, request.reason(), ""));
}

Status NodesApi::Readmit(const v1::ReadmitRequest& request, std::string_view actor,
                         v1::Node* response) {
  RETURN_IF_ERROR(parts_.authority->CheckOrders());
  RETURN_IF_ERROR(RequestBook::CheckReason(request.reason()));
  RETURN_IF_ERROR(
      parts_.sessions->claims().Readmit(request.node(), OrderOf(actor, request.reason(), "")));
  ShowNode(*parts_.ledger->FindWorker(request.node()), response);
  return OkStatus();
}

}  // namespace mt::daemon
