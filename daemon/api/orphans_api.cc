// Checks what a request says and passes it on.
#include "daemon/api/orphans_api.h"

#include "common/rpc/reason.h"
#include "daemon/api/request_book.h"
#include "daemon/authority/authority.h"
#include "daemon/workers/orphans.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

void OrphansApi::List(v1::ListOrphansResponse* response) { orphans_->List(response); }

Status OrphansApi::Adopt(const v1::AdoptRequest& request, std::string_view actor,
                         v1::Job* response) {
  RETURN_IF_ERROR(authority_->CheckOrders());
  RETURN_IF_ERROR(RequestBook::CheckReason(request.reason()));
  if (request.job_uid().empty() && request.name().empty()) {
    return rpc::WithReason(base::InvalidArgument("name the job, by name or uid"),
                           rpc::reason::kInvalidRequest);
  }
  ASSIGN_OR_RETURN(const v1::StoredJob* job,
                   orphans_->Adopt(request.job_uid(), request.name(),
                                   OrderOf(actor, request.reason(), /*request_id=*/"")));
  *response = job->job();
  return OkStatus();
}

Status OrphansApi::Kill(const v1::KillOrphanRequest& request, std::string_view actor,
                        v1::KillOrphanResponse* response) {
  RETURN_IF_ERROR(authority_->CheckOrders());
  RETURN_IF_ERROR(RequestBook::CheckReason(request.reason()));
  ASSIGN_OR_RETURN(const int ranks,
                   orphans_->Kill(request.node(), request.job_uid(),
                                  OrderOf(actor, request.reason(), /*request_id=*/"")));
  response->set_ranks(ranks);
  return OkStatus();
}

}  // namespace mt::daemon
