// Waits for the connection to a coordinator: one that has just begun, or whose machine is busy, is
// not given up soon.
#pragma once

#include <chrono>
#include <functional>

#include "common/base/status.h"
#include "common/control/numbers.h"
#include "common/rpc/endpoint.h"

namespace grpc {
class Channel;
}

namespace mt::client {

struct DialArgs {
  std::chrono::milliseconds told_after = control::kClientDialTold;
  std::chrono::milliseconds limit = control::kClientDial;
  // Called once, after `told_after`; null prints a line on stderr.
  std::function<void()> tell;
};

// Blocks until the channel is connected, at most for the limit; then kUnavailable with the address
// and how long it was.
Status Dial(grpc::Channel& channel, const rpc::Endpoint& endpoint, const DialArgs& args = {});

}  // namespace mt::client
