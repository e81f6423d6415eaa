// What operators ask of the coordinator itself, as plain blocking calls. Beside
// client/session/api.h the only part of mtctl that knows gRPC. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "client/session/api.h"
#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace mt::client {

class AdminApi {
 public:
  // Blocks until connected, at most for `dial`; kUnavailable names the address that did not answer.
  static StatusOr<std::unique_ptr<AdminApi>> Connect(const rpc::Endpoint& endpoint,
                                                     std::chrono::milliseconds dial);

  // Streams a backup of the coordinator's state: `take` gets its bytes in order on the calling
  // thread, and ends the call with its first error. OK only where the archive came whole. No
  // deadline; `stopper` ends it with kCancelled.
  Status Backup(StreamStopper* stopper,
                const std::function<Status(std::string_view bytes)>& take) const;

 private:
  explicit AdminApi(std::shared_ptr<grpc::Channel> channel) : channel_(std::move(channel)) {}

  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace mt::client
