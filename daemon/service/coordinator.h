// A whole coordinator in one object: store, history, core with its thread, gRPC and HTTP servers.
// main runs it, and tests start it on free ports. Thread-safe, except that one thread calls Stop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/rpc/endpoint.h"
#include "daemon/membership/silence_limits.h"

namespace mt::base {
class Notifier;
}

namespace mt::daemon {

class Core;

class Coordinator {
 public:
  // Addresses, state folder, and callbacks; see the flags in README.md.
  struct Config {
    rpc::Endpoint listen;
    std::string state_dir;
    // Called at most once, on an inner thread, when the store fails: the coordinator must be
    // stopped.
    std::function<void(const Status&)> on_store_failure;
    rpc::Endpoint http_listen = {.port = 0};  // serves /metrics, /livez, /readyz
    std::optional<rpc::Endpoint> health_listen =
        {};  // serves grpc.health.v1 only; unset: no such port
    // Confirms that an address beyond this machine is intended: there is no TLS and no
    // authentication.
    bool insecure = false;
    SilenceLimits silence = {};
    // Makes the store first where the folder has none. For tests: the program never does
    // (`mt-coordinator init`).
    bool create_store = false;
    base::Notifier* notifier =
        nullptr;  // pinged while the loop turns; may be null; outlives the coordinator
  };
  // InvalidArgument where an address can be reached from other machines and `insecure` is not set
  // (the health port reveals nothing, so it may have any address), or the limits contradict each
  // other (CheckLimits).
  static Status Check(const Config& config);
  // Opens the store, recovers the jobs and serves; it blocks until clients can connect. Errors are
  // those of Check, SqliteStore::Open and the servers' Start.
  static StatusOr<std::unique_ptr<Coordinator>> Start(const Config& config);
  ~Coordinator();  // Stop

  // The bound addresses; their ports are never 0.
  const rpc::Endpoint& endpoint() const;
  // Runs the task on the core's thread soon; after Stop it is dropped.
  void Post(std::function<void(Core&)> task);
  const rpc::Endpoint& http_endpoint() const;
  std::optional<rpc::Endpoint> health_endpoint() const;  // unset: there is no such port
  // Ends streams with UNAVAILABLE, lets calls in flight finish, and writes what is pending. Jobs go
  // on training. Blocks; further calls do nothing.
  void Stop();

 private:
  struct Parts;
  explicit Coordinator(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace mt::daemon
