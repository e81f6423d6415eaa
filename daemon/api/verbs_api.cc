// One way for every verb: checks, the answer to a repeated request, the keeper's verb, the request
// book.
#include "daemon/api/verbs_api.h"

#include <type_traits>

#include <absl/strings/escaping.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "common/base/ids.h"
#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "daemon/api/checkpoint_label.h"
#include "daemon/api/decode_texts.h"
#include "daemon/api/job_ref.h"
#include "daemon/api/operations_api.h"
#include "daemon/authority/authority.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/placer.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace reason = rpc::reason;

// The same bytes for the same request: a map's entries have no order of their own.
template <class Request>
std::string BytesOf(const Request& request) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&out);
  }
  return bytes;
}

}  // namespace

template <class Request, class Call>
Status VerbsApi::Operate(const Request& request, std::string_view verb, std::string_view actor,
                         v1::Operation* response, const Call& call) {
  RETURN_IF_ERROR(parts_.authority->CheckOrders());
  RETURN_IF_ERROR(RequestBook::CheckId(request.request_id()));
  RETURN_IF_ERROR(RequestBook::CheckReason(request.reason()));
  // Everything but the id and the job's name, which may mean another job by now.
  Request content = request;
  content.clear_request_id();
  std::string asked = absl::BytesToHexString(BytesOf(content));
  // Of prompts a digest is remembered: they may be long.
  if constexpr (std::is_same_v<Request, v1::DecodeRequest>) asked = base::Hash128Hex(asked);
  if (const v1::StoredRequest* before = parts_.requests->Find(request.request_id());
      before != nullptr) {
    RETURN_IF_ERROR(parts_.requests->CheckRepeated(*before, verb, asked));
    v1::GetOperationRequest get;
    get.set_name(before->target());
    return parts_.operations->Get(get, response);
  }
  ASSIGN_OR_RETURN(v1::StoredJob* const job, FindJob(parts_.ledger, request.job()));
  ASSIGN_OR_RETURN(const v1::Operation* const operation,
                   call(*job, OrderOf(actor, request.reason(), request.request_id())));
  parts_.requests->Remember(
      {.id = request.request_id(), .kind = verb, .target = operation->name(), .content = asked});
  parts_.placer->Run();
  *response = parts_.operations->Shown(*operation);
  return OkStatus();
}

Status VerbsApi::Pause(const v1::PauseRequest& request, std::string_view actor,
                       v1::Operation* response) {
  if (!v1::PauseRequest::Mode_IsValid(request.mode())) {
    return rpc::WithReason(
        base::InvalidArgument("mode {} of pause is unknown", static_cast<int>(request.mode())),
        reason::kInvalidRequest);
  }
  const bool release = request.mode() == v1::PauseRequest::RELEASE;
  if (request.discard() && !release) {
    return rpc::WithReason(
        base::InvalidArgument("discard is of a pause that releases: held ranks lose nothing"),
        reason::kInvalidRequest);
  }
  return Operate(request, "pause", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return release ? parts_.keeper->verbs().Release(job, request.discard(), order)
                   : parts_.keeper->verbs().Hold(job, order);
  });
}

Status VerbsApi::Resume(const v1::ResumeRequest& request, std::string_view actor,
                        v1::Operation* response) {
  return Operate(request, "resume", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return parts_.keeper->verbs().Resume(
        job, {.allow_older = request.allow_older(), .fresh = request.fresh()}, order);
  });
}

Status VerbsApi::Cancel(const v1::CancelRequest& request, std::string_view actor,
                        v1::Operation* response) {
  return Operate(request, "cancel", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return parts_.keeper->verbs().Cancel(job, request.checkpoint_first(), order);
  });
}

Status VerbsApi::Kill(const v1::KillRequest& request, std::string_view actor,
                      v1::Operation* response) {
  return Operate(request, "kill", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return parts_.keeper->verbs().Kill(job, order);
  });
}

Status VerbsApi::Delete(const v1::DeleteJobRequest& request, std::string_view actor,
                        v1::Operation* response) {
  return Operate(request, "delete", actor, response, [&](v1::StoredJob& job, const Order& order) {
    return parts_.keeper->verbs().Delete(job, order);
  });
}

Status VerbsApi::Profile(const v1::ProfileRequest& request, std::string_view actor,
                         v1::Operation* response) {
  const auto call = [&](v1::StoredJob& job, const Order& order) -> JobVerbs::Operated {
    if (request.steps() < 1 || request.steps() > control::kMostProfileSteps) {
      return rpc::WithReason(base::InvalidArgument("a profile is of 1 to {} steps, not of {}",
                                                   control::kMostProfileSteps, request.steps()),
                             reason::kInvalidRequest);
    }
    return parts_.keeper->verbs().Profile(job, request.steps(), order);
  };
  return Operate(request, "profile", actor, response, call);
}

Status VerbsApi::Decode(const v1::DecodeRequest& request, std::string_view actor,
                        v1::Operation* response) {
  const auto call = [&](v1::StoredJob& job, const Order& order) -> JobVerbs::Operated {
    v1::Generate generate = request.generate();
    RETURN_IF_ERROR(CompleteDecode(&generate));
    return parts_.keeper->verbs().Decode(job, generate, order);
  };
  return Operate(request, "decode", actor, response, call);
}

Status VerbsApi::TriggerCheckpoint(const v1::TriggerCheckpointRequest& request,
                                   std::string_view actor, v1::Operation* response) {
  RETURN_IF_ERROR(CheckCheckpointLabel(request.label()));
  return Operate(request, "checkpoint", actor, response,
                 [&](v1::StoredJob& job, const Order& order) {
                   return parts_.keeper->verbs().Checkpoint(job, request.label(), order);
                 });
}

}  // namespace mt::daemon
