// Client channels with this project's numbers: keepalive L2, reconnect L3, message limit A2; plain
// text; no proxy from the environment. Thread-safe.
#pragma once

#include <chrono>
#include <memory>

#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace grpc {
class Channel;
}

namespace mt::rpc {

// Connects lazily and reconnects by itself. Two calls with one endpoint share no connection.
std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint);

// Blocks until connected; Unavailable "no coordinator at HOST:PORT ..." (`what` is the first word's
// object) after `limit`.
Status WaitConnected(grpc::Channel& channel, const Endpoint& endpoint, std::string_view what,
                     std::chrono::milliseconds limit);

}  // namespace mt::rpc
