// Verbs on jobs; each is an Operation, remembered under its request id before it is answered.
// Answers are as of now; the caller sends them after the next commit (Ledger::AfterCommit). Errors
// carry a stable reason (common/rpc/reason.h). Not thread-safe (the core's thread).
#pragma once

#include <string_view>

#include "daemon/api/request_book.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class CancelRequest;
class DecodeRequest;
class DeleteJobRequest;
class KillRequest;
class PauseRequest;
class ProfileRequest;
class ResumeRequest;
class TriggerCheckpointRequest;
}  // namespace megatrain::v1

namespace mt::daemon {

class Authority;
class JobKeeper;
class OperationsApi;
class Placer;

class VerbsApi {
 public:
  struct Parts {
    const Authority* authority;
    Ledger* ledger;
    JobKeeper* keeper;
    Placer* placer;
    RequestBook* requests;
    OperationsApi* operations;
  };
  // All parts outlive it.
  explicit VerbsApi(const Parts& parts) : parts_(parts) {}

  Status Pause(const v1::PauseRequest& request, std::string_view actor, v1::Operation* response);
  Status Resume(const v1::ResumeRequest& request, std::string_view actor, v1::Operation* response);
  Status Cancel(const v1::CancelRequest& request, std::string_view actor, v1::Operation* response);
  Status Kill(const v1::KillRequest& request, std::string_view actor, v1::Operation* response);
  Status Delete(const v1::DeleteJobRequest& request, std::string_view actor,
                v1::Operation* response);
  Status Profile(const v1::ProfileRequest& request, std::string_view actor,
                 v1::Operation* response);
  Status Decode(const v1::DecodeRequest& request, std::string_view actor, v1::Operation* response);
  Status TriggerCheckpoint(const v1::TriggerCheckpointRequest& request, std::string_view actor,
                           v1::Operation* response);

 private:
  // What all verbs have in common; `call` is the keeper's verb.
  template <class Request, class Call>
  Status Operate(const Request& request, std::string_view verb, std::string_view actor,
                 v1::Operation* response, const Call& call);

  Parts parts_;
};

}  // namespace mt::daemon
