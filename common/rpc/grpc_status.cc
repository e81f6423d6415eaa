// The conversion is a cast: absl and gRPC number the canonical codes alike.
#include "common/rpc/grpc_status.h"

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

namespace mt::rpc {

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.raw_code()), base::Message(status)};
}

grpc::Status ToGrpc(const Status& status, grpc::ServerContextBase* context) {
  const std::string reason = ReasonOf(status);
  if (!reason.empty()) context->AddTrailingMetadata(kReasonKey, reason);
  return ToGrpc(status);
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), base::ToAbsl(status.error_message())};
}

Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  Status out = FromGrpc(status);
  if (out.ok()) return out;
  const auto& trailing = context.GetServerTrailingMetadata();
  const auto found = trailing.find(kReasonKey);
  if (found == trailing.end()) return out;
  return WithReason(std::move(out), std::string_view(found->second.data(), found->second.size()));
}

}  // namespace mt::rpc
