// The order of a declared restore: term, event, sessions, gate.
#include "daemon/api/admin_api.h"

#include "daemon/api/request_book.h"
#include "daemon/authority/authority.h"
#include "daemon/keeper/restore_gate.h"
#include "daemon/ledger/ledger.h"
#include "daemon/workers/sessions.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

void AdminApi::Describe(v1::ServerInfo* out) const {
  const v1::StoredCluster& cluster = parts_.ledger->Cluster();
  out->set_cluster_id(cluster.cluster_id());
  out->set_term(cluster.term());
  out->set_no_orders(parts_.authority->Why());
}

Status AdminApi::DeclareRestore(const v1::DeclareRestoreRequest& request, std::string_view actor) {
  RETURN_IF_ERROR(RequestBook::CheckReason(request.reason()));
  RETURN_IF_ERROR(parts_.authority->CheckStore());
  const std::string before = parts_.authority->Why();
  RETURN_IF_ERROR(parts_.begin_restore());
  parts_.ledger->AddEvent(
      {.type = "RestoreDeclared",
       .message = fmt::format("term {} begins{}{}", parts_.ledger->Cluster().term(),
                              before.empty() ? "" : "; before: ", before),
       .actor = std::string(actor),
       .reason = request.reason()});
  parts_.sessions->RegisterAgain(
      base::Unavailable("a restore was declared: a new term begins; register again"));
  parts_.restore_gate->Close();
  return OkStatus();
}

}  // namespace mt::daemon
