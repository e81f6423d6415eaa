// Changes of the one row of the cluster's table.
#include "daemon/core/begin_term.h"

#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/control/epoch.h"
#include "common/crypto/hmac.h"
#include "daemon/authority/authority.h"
#include "daemon/ledger/ledger.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

constexpr int kKeyBytes = 32;

Status Raise(Ledger* ledger, int64_t by) {
  v1::StoredCluster& cluster = ledger->Cluster();
  if (cluster.term() > control::kMaxTerm - by) {
    return base::FailedPrecondition(
        "term {} of cluster {} cannot be raised by {}: terms end at {}. Start a new cluster "
        "(another --state), and join its workers to it (mt-worker join)",
        cluster.term(), cluster.cluster_id(), by, control::kMaxTerm);
  }
  cluster.set_term(cluster.term() + by);
  ledger->MarkCluster();
  return OkStatus();
}

}  // namespace

Status BeginTerm(Ledger* ledger, Authority* authority) {
  v1::StoredCluster& cluster = ledger->Cluster();
  if (cluster.cluster_id().empty()) cluster.set_cluster_id(base::NewUid());
  if (cluster.cluster_key().empty()) cluster.set_cluster_key(crypto::RandomBytes(kKeyBytes));
  RETURN_IF_ERROR(Raise(ledger, 1));
  log::Info("a new term begins", {{"cluster", cluster.cluster_id()}, {"term", cluster.term()}});
  if (cluster.superseded().empty()) return OkStatus();
  if (cluster.restored_term() > cluster.superseded_by()) {
    cluster.clear_superseded();
    cluster.clear_superseded_by();
    return OkStatus();
  }
  authority->Supersede(cluster.superseded());
  log::Error("this coordinator gives no orders", {{"why", cluster.superseded()}});
  return OkStatus();
}

Status BeginRestore(Ledger* ledger, Authority* authority) {
  v1::StoredCluster& cluster = ledger->Cluster();
  RETURN_IF_ERROR(Raise(ledger, control::kRestoreTerms));
  cluster.set_restored_term(cluster.term());
  cluster.set_restore_settled(false);
  cluster.clear_superseded();
  cluster.clear_superseded_by();
  authority->Reinstate();
  return OkStatus();
}

}  // namespace mt::daemon
