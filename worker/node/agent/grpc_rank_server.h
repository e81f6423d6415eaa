// RankLinks over gRPC: serves RankChannel on the agent's Unix socket, one link per call. gRPC's
// threads only post to the loop.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/node/loop/event_loop.h"
#include "worker/node/ranks/rank_links.h"

namespace mt::node {

class GrpcRankServer final : public RankLinks {
 public:
  explicit GrpcRankServer(EventLoop* loop);
  // Ends all calls and blocks until gRPC has released them. The loop must not run any more.
  ~GrpcRankServer() override;

  Status Listen(const std::string& socket_path);

  void SetListener(Listener* listener) override;
  void Send(LinkId link, const megatrain::v1::AgentMessage& message) override;
  void Refuse(LinkId link, const std::string& reason) override;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace mt::node
