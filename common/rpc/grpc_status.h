// The one map between Status and grpc::Status (the codes are the same numbers), and the way of the
// stable reason: trailing metadata "mt-reason" over the wire, payload inside a process
// (common/rpc/reason.h). Thread-safe.
#pragma once

#include "common/base/status.h"
#include "common/rpc/reason.h"

namespace grpc {
class ClientContext;
class ServerContextBase;
class Status;
}  // namespace grpc

namespace mt::rpc {

// For a handler's Finish: puts the reason, where there is one, into the trailing metadata of
// `context`.
grpc::Status ToGrpc(const Status& status, grpc::ServerContextBase* context);
grpc::Status ToGrpc(const Status& status);

// For a client after its call has ended: the status with the reason that the server sent. Call once
// per context.
Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context);
Status FromGrpc(const grpc::Status& status);

}  // namespace mt::rpc
