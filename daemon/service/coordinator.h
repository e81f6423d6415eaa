// A whole coordinator in one object: store, core, its thread, gRPC server. What main runs, and what
// tests start on a free port.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace mt::daemon {

class Coordinator {
 public:
  struct Config {
    rpc::Endpoint listen;
    std::string state_dir;
    // Of /metrics and the probes, as GetInfo tells it; empty: none.
    std::string http_endpoint = {};
    // Called once, on an inner thread, when the store fails: the coordinator must be stopped.
    std::function<void(const Status&)> on_store_failure;
  };
  // Serves when it returns. Errors: what SqliteStore::Open and rpc::Server::Start say.
  static StatusOr<std::unique_ptr<Coordinator>> Start(const Config& config);
  ~Coordinator();  // Stop

  const rpc::Endpoint& endpoint() const;
  // Ends streams with UNAVAILABLE, lets calls in flight finish, writes what is left. Jobs go on
  // training.
  void Stop();

 private:
  struct Parts;
  explicit Coordinator(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace mt::daemon
