// The common path of every unary call: switch to the core's thread, answer after its commit.
// Included by the handlers' .cc files only, as it needs gRPC.
#pragma once

#include <string>
#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "common/rpc/grpc_status.h"
#include "common/rpc/reason.h"
#include "daemon/authority/authority.h"
#include "daemon/core/core.h"
#include "daemon/ledger/ledger.h"
#include "daemon/service/core_loop.h"

namespace mt::daemon {

// The user whom the client names, for operations and events; "anonymous" where it names none.
inline std::string ActorOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(rpc::kActorKey);
  if (found == context.client_metadata().end()) return "anonymous";
  return {found->second.data(), found->second.size()};
}

// The answer to every call after the store has failed.
inline Status StoreFailed(const Status& commit) {
  return rpc::WithReason(base::Unavailable("the coordinator cannot write its store and ends: {}",
                                           base::Message(commit)),
                         rpc::reason::kStoreFailed);
}

// `call(core)` runs on the core's thread, fills the response and returns the status. The client
// gets it only after the commit that makes the change durable. `context` and the response live
// until the reactor has finished.
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

// The same for a call that changes something: refused while this coordinator gives no orders. Every
// such call comes through here, but for the one that makes it give orders again (DeclareRestore).
template <class Call>
grpc::ServerUnaryReactor* RunChange(CoreLoop* loop, grpc::CallbackServerContext* context,
                                    Call call) {
  return RunUnary(loop, context, [call = std::move(call)](Core& core) {
    const Status orders = core.authority().CheckOrders();
    return orders.ok() ? call(core) : orders;
  });
}

}  // namespace mt::daemon
