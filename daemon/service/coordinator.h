// A whole coordinator in one object: store, history, core, its thread, gRPC server, HTTP server.
// What main runs, and what tests start on a free port.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace mt::base {
class Notifier;
}

namespace mt::daemon {

class Core;

class Coordinator {
 public:
  struct Config {
    rpc::Endpoint listen;
    std::string state_dir;
    // Called once, on an inner thread, when the store fails: the coordinator must be stopped.
    std::function<void(const Status&)> on_store_failure;
    rpc::Endpoint http_listen = {.port = 0};          // /metrics, /livez, /readyz
    std::optional<rpc::Endpoint> health_listen = {};  // grpc.health.v1 alone; unset: none
    // Whether an address beyond this machine is meant: there is no TLS and no authentication.
    bool insecure = false;
    base::Notifier* notifier = nullptr;  // hears that the loop works; outlives the coordinator
  };
  // InvalidArgument where an address can be reached from other machines and `insecure` is not set.
  // The health port says nothing worth hiding and may be anywhere.
  static Status Check(const Config& config);
  // Serves when it returns. Errors: what Check, SqliteStore::Open and the servers' Start say.
  static StatusOr<std::unique_ptr<Coordinator>> Start(const Config& config);
  ~Coordinator();  // Stop

  const rpc::Endpoint& endpoint() const;
  // Runs on the core's thread, soon; after Stop never.
  void Post(std::function<void(Core&)> task);
  const rpc::Endpoint& http_endpoint() const;
  std::optional<rpc::Endpoint> health_endpoint() const;  // unset: there is no such port
  // Ends streams with UNAVAILABLE, lets calls in flight finish, writes what is left. Jobs go on
  // training.
  void Stop();

 private:
  struct Parts;
  explicit Coordinator(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace mt::daemon
