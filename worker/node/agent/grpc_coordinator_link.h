// CoordinatorLink over gRPC: one Worker.Session call at a time on one channel. gRPC's threads only
// post to the loop.
#pragma once

#include <memory>

#include "common/rpc/endpoint.h"
#include "worker/node/agent/coordinator_link.h"
#include "worker/node/loop/event_loop.h"

namespace mt::node {

class GrpcCoordinatorLink final : public CoordinatorLink {
 public:
  GrpcCoordinatorLink(EventLoop* loop, const rpc::Endpoint& coordinator);
  // Cancels the call and blocks until gRPC has released it. The loop must not run any more.
  ~GrpcCoordinatorLink() override;

  void SetListener(Listener* listener) override { listener_ = listener; }
  void Open() override;
  void Send(const megatrain::v1::WorkerMessage& message) override;
  int64_t QueuedBytes() const override;
  void Close() override;

 private:
  class Stream;
  struct Channel;

  EventLoop* loop_;
  Listener* listener_ = nullptr;
  std::unique_ptr<Channel> channel_;
  std::shared_ptr<Stream> stream_;  // null if none is open
};

}  // namespace mt::node
