// Counts the server's gRPC calls by service, method and code (METRICS.md) in an interceptor that
// the server runs around each call. The series exist from the start, so that each begins at 0.
// Thread-safe.
#pragma once

#include <memory>

#include "common/metrics/registry.h"

namespace grpc {
class ServerBuilder;
}

namespace mt::daemon {

class CallMeter {
 public:
  // `registry` must outlive this object.
  explicit CallMeter(metrics::Registry* registry);
  ~CallMeter();
  // Adds the interceptor to a server under construction; the meter must outlive that server.
  void Install(grpc::ServerBuilder* builder);

  struct Methods;

 private:
  std::unique_ptr<Methods> methods_;
};

}  // namespace mt::daemon
