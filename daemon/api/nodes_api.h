// Calls on nodes. Not thread-safe (the core's thread).
#pragma once

#include <string_view>

#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class DeclareDeadRequest;
class ListNodesResponse;
class Node;
class ReadmitRequest;
}  // namespace megatrain::v1

namespace mt::daemon {

class LeaseTable;
class Placer;
class Sessions;

class NodesApi {
 public:
  struct Parts {
    Ledger* ledger;
    LeaseTable* leases;
    Placer* placer;
    Sessions* sessions;
  };
  // All parts outlive it.
  explicit NodesApi(const Parts& parts) : parts_(parts) {}

  // All nodes that were ever registered, with who holds their slots.
  void List(v1::ListNodesResponse* response);
  // An operator says that nothing runs there. Errors are those of Sessions::DeclareDead.
  Status DeclareDead(const v1::DeclareDeadRequest& request, std::string_view actor,
                     v1::Node* response);
  // Lets a host that lost its node's secret have the name again. Errors are those of
  // NodeClaims::Readmit.
  Status Readmit(const v1::ReadmitRequest& request, std::string_view actor, v1::Node* response);

 private:
  void ShowNode(const v1::StoredWorker& worker, v1::Node* node);

  Parts parts_;
};

}  // namespace mt::daemon
