// Api's verbs: what changes a job or a node. Every one is remembered under its request id, with
// what was asked, before it is answered.
#include <utility>

#include <absl/strings/escaping.h>

#include "common/rpc/reason.h"
#include "common/spec/print.h"
#include "common/spec/update.h"
#include "daemon/api/api.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/placer.h"
#include "daemon/workers/sessions.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

constexpr size_t kMaxReasonBytes = 1'024;

Status CheckReason(const std::string& text) {
  if (text.size() <= kMaxReasonBytes) return OkStatus();
  return rpc::WithReason(base::InvalidArgument("a reason has at most {} bytes", kMaxReasonBytes),
                         reason::kInvalidRequest);
}

Order OrderOf(std::string_view actor, const std::string& why, const std::string& request_id) {
  return {.actor = std::string(actor), .reason = why, .request_id = request_id};
}

}  // namespace

template <class Request, class Call>
Status Api::Operate(const Request& request, std::string_view verb, std::string_view actor,
                    v1::Operation* response, const Call& call) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  RETURN_IF_ERROR(CheckReason(request.reason()));
  // Everything but the id and the job's name, which may mean another job by now.
  Request content = request;
  content.clear_request_id();
  const std::string digest = absl::BytesToHexString(content.SerializeAsString());
  if (const v1::StoredRequest* before = parts_.ledger->FindRequest(request.request_id());
      before != nullptr) {
    RETURN_IF_ERROR(Repeated(*before, verb, digest));
    v1::GetOperationRequest get;
    get.set_name(before->target());
    return GetOperation(get, response);
  }
  ASSIGN_OR_RETURN(v1::StoredJob* const job, Find(request.job()));
  ASSIGN_OR_RETURN(const v1::Operation* const operation,
                   call(*job, OrderOf(actor, request.reason(), request.request_id())));
  RememberRequest(request.request_id(), verb, operation->name(), digest);
  parts_.placer->Run();
  *response = *operation;
  return OkStatus();
}

Status Api::Pause(const v1::PauseRequest& request, std::string_view actor,
                  v1::Operation* response) {
  if (!v1::PauseRequest::Mode_IsValid(request.mode())) {
    return rpc::WithReason(
        base::InvalidArgument("mode {} of pause is unknown", static_cast<int>(request.mode())),
        reason::kInvalidRequest);
  }
  return Operate(request, "pause", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return request.mode() == v1::PauseRequest::RELEASE ? parts_.keeper->verbs().Release(job, order)
                                                       : parts_.keeper->verbs().Hold(job, order);
  });
}

Status Api::Resume(const v1::ResumeRequest& request, std::string_view actor,
                   v1::Operation* response) {
  return Operate(request, "resume", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return parts_.keeper->verbs().Resume(job, order);
  });
}

Status Api::Cancel(const v1::CancelRequest& request, std::string_view actor,
                   v1::Operation* response) {
  return Operate(request, "cancel", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return parts_.keeper->verbs().Cancel(job, request.checkpoint_first(), order);
  });
}

Status Api::Kill(const v1::KillRequest& request, std::string_view actor, v1::Operation* response) {
  return Operate(request, "kill", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return parts_.keeper->verbs().Kill(job, order);
  });
}

Status Api::Delete(const v1::DeleteJobRequest& request, std::string_view actor,
                   v1::Operation* response) {
  return Operate(request, "delete", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return parts_.keeper->verbs().Delete(job, order);
  });
}

Status Api::TriggerCheckpoint(const v1::TriggerCheckpointRequest& request, std::string_view actor,
                              v1::Operation* response) {
  return Operate(request, "checkpoint", actor, response,
                 [&](v1::StoredJob& job, const Order& order) {
                   return parts_.keeper->verbs().Checkpoint(job, order);
                 });
}

Status Api::ListCheckpoints(const v1::ListCheckpointsRequest& request,
                            v1::ListCheckpointsResponse* response) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, Find(request.job()));
  response->set_directory(job->job().checkpoint_path());
  *response->mutable_checkpoints() = job->job().checkpoints();
  return OkStatus();
}

Status Api::CheckUpdate(const v1::UpdateJobRequest& request, const v1::Job& job) const {
  if (IsFinal(job.state())) {
    return rpc::WithReason(
        base::FailedPrecondition("job '{}' is {}: update is not possible there (possible: {})",
                                 job.name(), v1::JobState_Name(job.state()),
                                 AllowedVerbs({job.state(), job.stopping_to()}, job.goal())),
        reason::kWrongState);
  }
  if (request.etag().empty() || request.etag() == job.etag()) return OkStatus();
  return rpc::WithReason(base::Error(absl::StatusCode::kAborted,
                                     "job '{}' has changed since (etag {}, not {}); read it again",
                                     job.name(), job.etag(), request.etag()),
                         reason::kEtagMismatch);
}

Status Api::Update(const v1::UpdateJobRequest& request, std::string_view actor, v1::Job* response) {
  // Setting a value twice is setting it once: the id may be left out.
  if (!request.request_id().empty()) RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  RETURN_IF_ERROR(CheckReason(request.reason()));
  v1::UpdateJobRequest content = request;
  content.clear_request_id();
  content.clear_changes();  // has labels, whose order in bytes is any
  const std::string digest = fmt::format("{}/{}", spec::Digest(request.changes()),
                                         absl::BytesToHexString(content.SerializeAsString()));
  if (const v1::StoredRequest* before = parts_.ledger->FindRequest(request.request_id());
      before != nullptr && !request.request_id().empty()) {
    RETURN_IF_ERROR(Repeated(*before, "update", digest));
    v1::GetJobRequest get;
    get.mutable_job()->set_uid(before->target());
    return GetJob(get, response);
  }
  ASSIGN_OR_RETURN(v1::StoredJob* const stored, Find(request.job()));
  v1::Job* job = stored->mutable_job();
  RETURN_IF_ERROR(CheckUpdate(request, *job));
  std::vector<spec::FieldChange> changes;
  const spec::Update update{
      .changes = request.changes(),
      .clear = {request.clear().begin(), request.clear().end()},
      .remove_labels = {request.remove_labels().begin(), request.remove_labels().end()}};
  const spec::Faults faults = spec::ApplyUpdate({}, update, job->mutable_spec(), &changes);
  if (!faults.empty()) return rpc::WithReason(spec::ToStatus(faults), reason::kInvalidSpec);
  if (!request.request_id().empty())
    RememberRequest(request.request_id(), "update", job->uid(), digest);
  TakeUpdate(*stored, changes, OrderOf(actor, request.reason(), request.request_id()));
  *response = *job;
  return OkStatus();
}

void Api::TakeUpdate(v1::StoredJob& stored, const std::vector<spec::FieldChange>& changes,
                     const Order& order) {
  if (changes.empty()) return;
  v1::Job* job = stored.mutable_job();
  std::string shown;
  bool for_ranks = false;
  for (const spec::FieldChange& change : changes) {
    shown += fmt::format("{}{}: {} -> {}", shown.empty() ? "" : ", ", change.path,
                         change.before.empty() ? "unset" : change.before,
                         change.after.empty() ? "unset" : change.after);
    for_ranks |= change.path.starts_with("training.") || change.path.starts_with("checkpoint.");
  }
  SetDeadline(job);
  parts_.ledger->MarkJob(stored, Change::kState);
  parts_.ledger->AddEvent({.type = "Updated",
                           .message = shown,
                           .job_uid = job->uid(),
                           .actor = order.actor,
                           .reason = order.reason});
  if (for_ranks) parts_.keeper->verbs().SpecChanged(stored, order);
  parts_.placer->Run();
}

Status Api::DeclareDead(const v1::DeclareDeadRequest& request, std::string_view actor,
                        v1::Node* response) {
  RETURN_IF_ERROR(CheckReason(request.reason()));
  RETURN_IF_ERROR(
      parts_.sessions->DeclareDead(request.node(), OrderOf(actor, request.reason(), "")));
  ShowNode(*parts_.ledger->FindWorker(request.node()), response);
  return OkStatus();
}

}  // namespace mt::daemon
