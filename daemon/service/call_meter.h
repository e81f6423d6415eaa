// Counts the gRPC calls of the server, by service, method and code (METRICS.md), as an interceptor
// that the server runs around each call. Series are made at the start, so that each begins at 0.
#pragma once

#include <memory>

#include "common/metrics/registry.h"

namespace grpc {
class ServerBuilder;
}

namespace mt::daemon {

class CallMeter {
 public:
  // `registry` outlives it.
  explicit CallMeter(metrics::Registry* registry);
  ~CallMeter();
  // The meter outlives the server that is built.
  void Install(grpc::ServerBuilder* builder);

  struct Methods;

 private:
  std::unique_ptr<Methods> methods_;
};

}  // namespace mt::daemon
