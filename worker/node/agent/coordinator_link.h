// One session stream to the coordinator: opened, used, closed, opened again. No retry, no meaning
// of messages: coordinator_session.h has those. grpc_coordinator_link.h is the real one. Loop
// thread only; listeners are called on the loop, never from inside a call.
#pragma once

#include <cstdint>

#include "common/base/status.h"

namespace megatrain::v1 {
class CoordinatorMessage;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

class CoordinatorLink {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnMessage(const megatrain::v1::CoordinatorMessage& message) = 0;
    // The stream that Open started is over. Once per Open.
    virtual void OnClosed(const Status& why) = 0;
  };

  virtual ~CoordinatorLink() = default;
  virtual void SetListener(Listener* listener) = 0;
  // Starts a stream; not while one is open. Messages may be sent at once.
  virtual void Open() = 0;
  // In order; dropped where no stream is open.
  virtual void Send(const megatrain::v1::WorkerMessage& message) = 0;
  // Bytes sent but not yet taken by the transport.
  virtual int64_t QueuedBytes() const = 0;
  // Ends the stream; OnClosed follows. Ignored where none is open.
  virtual void Close() = 0;
};

}  // namespace mt::node
