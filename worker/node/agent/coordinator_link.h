// The transport of CoordinatorSession: one stream at a time to the coordinator. Retries and the
// meaning of messages are the session's. Implemented by grpc_coordinator_link.h, and by a fake in
// tests. Loop thread only; nothing blocks; listeners are called on the loop, never from inside a
// call.
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
    // The stream has ended, or could not be opened. Called exactly once per Open.
    virtual void OnClosed(const Status& why) = 0;
  };

  virtual ~CoordinatorLink() = default;
  virtual void SetListener(Listener* listener) = 0;
  // Starts a stream; must not be called while one is open. Messages may be sent at once.
  virtual void Open() = 0;
  // Sends in order; drops the message if no stream is open.
  virtual void Send(const megatrain::v1::WorkerMessage& message) = 0;
  // Bytes passed to Send that the transport has not taken yet.
  virtual int64_t QueuedBytes() const = 0;
  // Ends the stream; OnClosed follows. Ignored if none is open.
  virtual void Close() = 0;
};

}  // namespace mt::node
