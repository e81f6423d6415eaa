// The calls of this node's ranks: each is a link, told apart by a number. grpc_rank_server.h is the
// real one. Loop thread only; listeners are called on the loop, never from inside a call.
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
  // In order; dropped where the link is closed.
  virtual void Send(LinkId link, const megatrain::v1::AgentMessage& message) = 0;
  // Refuses a call: the rank sees PERMISSION_DENIED with this reason. OnRankClosed follows.
  virtual void Refuse(LinkId link, const std::string& reason) = 0;
};

}  // namespace mt::node
