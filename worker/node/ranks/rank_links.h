// The calls of this node's ranks to the agent. Each call is a link with a number of its own.
// Implemented by agent/grpc_rank_server.h, and by a fake in tests. Loop thread only; nothing
// blocks; listeners are called on the loop, never from inside a call.
#pragma once

#include <cstdint>
#include <string>

namespace megatrain::v1 {
class AgentMessage;
class RankMessage;
}  // namespace megatrain::v1

namespace mt::node {

using LinkId = int64_t;
inline constexpr LinkId kNoLink = 0;

class RankLinks {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnRankMessage(LinkId link, const megatrain::v1::RankMessage& message) = 0;
    virtual void OnRankClosed(LinkId link) = 0;
  };

  virtual ~RankLinks() = default;
  virtual void SetListener(Listener* listener) = 0;
  // Sends in order; drops the message if the link is closed.
  virtual void Send(LinkId link, const megatrain::v1::AgentMessage& message) = 0;
  // Ends a call with PERMISSION_DENIED and this reason. OnRankClosed follows.
  virtual void Refuse(LinkId link, const std::string& reason) = 0;
};

}  // namespace mt::node
