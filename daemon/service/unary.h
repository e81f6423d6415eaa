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

// Whether a call changes something.
enum class CallKind { kRead, kChange };

// `call(core)` runs on the core's thread, fills the response and returns the status. The client
// gets it only after the commit that makes the change durable; what was refused, and a read, is
// answered even while the disk is full. `context` and the response live until the reactor has
// finished.
template <class Call>
grpc::ServerUnaryReactor* RunUnary(CoreLoop* loop, grpc::CallbackServerContext* context, Call call,
                                   CallKind kind = CallKind::kChange) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop->Post([reactor, context, kind, call = std::move(call)](Core& core) {
    const Status status = call(core);
    auto answer = [reactor, context, status](const Status& commit) {
      reactor->Finish(rpc::ToGrpc(commit.ok() ? status : StoreFailed(commit), context));
    };
    if (kind == CallKind::kChange && status.ok()) {
      core.ledger().AfterCommit(std::move(answer));
    } else {
      core.ledger().AfterRound(std::move(answer));
    }
  });
  return reactor;
}

template <class Call>
grpc::ServerUnaryReactor* RunRead(CoreLoop* loop, grpc::CallbackServerContext* context, Call call) {
  return RunUnary(loop, context, std::move(call), CallKind::kRead);
}

}  // namespace mt::daemon
