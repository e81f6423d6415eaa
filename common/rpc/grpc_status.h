// The one conversion between Status and grpc::Status (the codes are the same numbers), and the
// transport of the stable reason: trailing metadata "mt-reason" on the wire, a payload within a
// process (common/rpc/reason.h). Thread-safe.
#pragma once

#include "common/base/status.h"
#include "common/rpc/reason.h"

namespace grpc {
class ClientContext;
class ServerContextBase;
class Status;
}  // namespace grpc

namespace mt::rpc {

// For a handler's Finish: adds the reason, if there is one, to the trailing metadata of `context`.
// The overload without a context loses the reason.
grpc::Status ToGrpc(const Status& status, grpc::ServerContextBase* context);
grpc::Status ToGrpc(const Status& status);

// For a client whose call has ended: the status with the reason that the server sent. Call it once
// per context.
Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context);
Status FromGrpc(const grpc::Status& status);

}  // namespace mt::rpc
