// Who may have a node's name (docs/design/control-plane.md#nodes). A node proves itself by a secret
// that it was given at its first registration and that any store of the same cluster can compute
// again. While the holder of a name was heard within L1 (10 s) nobody else has it, whatever else
// the claimant shows. Refused claims are shown with the node. Not thread-safe (the core's thread).
#pragma once

#include <map>
#include <set>
#include <string>

#include "daemon/hub/worker_hub.h"
#include "daemon/keeper/operations.h"
#include "daemon/ledger/ledger.h"
#include "daemon/workers/held_settlement.h"

namespace megatrain::v1 {
class Register;
class Registered;
}  // namespace megatrain::v1

namespace mt::daemon {

class LeaseTable;

class NodeClaims {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    LeaseTable* leases;
  };
  // All parts outlive it.
  explicit NodeClaims(const Parts& parts) : parts_(parts) {}

  // OK where the claimant may have the name. AlreadyExists (NODE_NAME_IN_USE) while its holder is
  // heard, PermissionDenied (NODE_SECRET_WRONG) without the node's secret; both are shown with the
  // node, an event tells of each address once.
  Status Check(SessionId id, const v1::Register& hello);
  // What the claimant has in common with the former holder.
  HeldSettlement::Former FormerOf(const v1::Register& hello);
  // Fills in what the new row has of the former one and of the claim.
  void Take(const v1::Register& hello, v1::StoredWorker* worker);
  // Gives the registered worker a secret where it has shown none.
  void GiveSecret(const v1::Register& hello, WorkerSession* session, v1::Registered* registered);
  // The worker has the secret of this session on its disk: it is asked for from now on.
  void OnSecretKept(const WorkerSession& session, int64_t generation);
  // An operator lets the name be taken without its secret, once. NotFound (UNKNOWN_NODE);
  // FailedPrecondition (NODE_HOLDS_RANKS) while slots of it are held.
  Status Readmit(const std::string& node, const Order& order);

 private:
  // The code that proves the name, of that generation.
  std::string SecretOf(const std::string& node, int64_t generation);
  bool IsProven(const v1::Register& hello, const v1::StoredWorker* known);
  Status CheckSecret(const v1::Register& hello, const v1::StoredWorker& known);
  Status CheckHolder(SessionId id, const v1::Register& hello, const v1::StoredWorker& known);
  void ShowRefused(const v1::Register& hello, const Status& why, v1::StoredWorker* known);

  Parts parts_;
  std::map<std::string, std::set<std::string>>
      told_;  // node -> addresses that an event has told of
};

}  // namespace mt::daemon
