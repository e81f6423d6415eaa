// Client channels with this project's numbers (common/control/numbers.h): keepalive L2,
// reconnect L3, message limit A2. Plain text, and no proxy from the environment. Thread-safe.
#pragma once

#include <chrono>
#include <memory>

#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace grpc {
class Channel;
}

namespace mt::rpc {

// Connects lazily and reconnects by itself. Two channels to one endpoint share no connection.
std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint);

// Blocks until the channel is connected, at most for `limit`; then Unavailable "no WHAT at
// HOST:PORT (waited N ms)", where `what` names the peer: "coordinator".
Status WaitConnected(grpc::Channel& channel, const Endpoint& endpoint, std::string_view what,
                     std::chrono::milliseconds limit);

}  // namespace mt::rpc
