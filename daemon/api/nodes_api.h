// Calls on nodes. Not thread-safe (the core's thread).
#pragma once

#include <string_view>

#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class DeclareDeadRequest;
class DeleteNodeRequest;
class ListNodesResponse;
class Node;
class ReadmitRequest;
}  // namespace megatrain::v1

namespace mt::daemon {

class Authority;
class LeaseTable;
class NodeRemoval;
class Placer;
class Sessions;

class NodesApi {
 public:
  struct Parts {
    const Authority* authority;
    Ledger* ledger;
    LeaseTable* leases;
    Placer* placer;
    Sessions* sessions;
    NodeRemoval* removal;
  };
  // All parts outlive it.
  explicit NodesApi(const Parts& parts) : parts_(parts) {}

  // All nodes that were ever registered, with who holds their slots.
  void List(v1::ListNodesResponse* response);
  // An operator says that nothing runs there. Errors are those of Sessions::DeclareDead.
  Status DeclareDead(const v1::DeclareDeadRequest& request, std::string_view actor,
                     v1::Node* response);
  // Forgets a node. Errors are those of NodeRemoval::Delete.
  Status Delete(const v1::DeleteNodeRequest& request, std::string_view actor);
  // Lets a host that lost its node's secret have the name again. Errors are those of
  // NodeClaims::Readmit.
  Status Readmit(const v1::ReadmitRequest& request, std::string_view actor, v1::Node* response);

 private:
  void ShowNode(const v1::StoredWorker& worker, v1::Node* node);

  Parts parts_;
};

}  // namespace mt::daemon
