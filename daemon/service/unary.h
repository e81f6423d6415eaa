// One way for every unary call: over to the core's thread, answer after its commit. Included by the
// handlers' .cc files only (gRPC).
#pragma once

#include <string>
#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "common/rpc/grpc_status.h"
#include "common/rpc/reason.h"
#include "daemon/core/core.h"
#include "daemon/core/ledger.h"
#include "daemon/service/core_loop.h"

namespace mt::daemon {

// Who asks, for operations and events.
inline std::string ActorOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(rpc::kActorKey);
  if (found == context.client_metadata().end()) return "anonymous";
  return {found->second.data(), found->second.size()};
}

inline Status StoreFailed(const Status& commit) {
  return rpc::WithReason(base::Unavailable("the coordinator cannot write its store and ends: {}",
                                           base::Message(commit)),
                         rpc::reason::kStoreFailed);
}

// `call(core)` gives the Status and fills the response; both stay valid until the reactor has
// finished.
template <class Call>
grpc::ServerUnaryReactor* RunUnary(CoreLoop* loop, grpc::CallbackServerContext* context,
                                   Call call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop->Post([reactor, context, call = std::move(call)](Core& core) {
    const Status status = call(core);
    core.ledger().AfterCommit([reactor, context, status](const Status& commit) {
      reactor->Finish(rpc::ToGrpc(commit.ok() ? status : StoreFailed(commit), context));
    });
  });
  return reactor;
}

}  // namespace mt::daemon
