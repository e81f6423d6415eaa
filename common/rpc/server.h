// A gRPC server with this project's numbers (keepalive L2, message limit A2), the standard health
// service, and start-up errors that say what to do. It owns the listening socket; services are
// borrowed and must outlive it. Plain text, on loopback by default. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace grpc {
class ServerBuilder;
class Service;
}  // namespace grpc

namespace mt::rpc {

class Server {
 public:
  struct Config {
    Endpoint listen;                       // port 0: any free one
    std::vector<grpc::Service*> services;  // borrowed; at least one
    bool health_only = false;              // no services but health; `services` is empty
    // Applies further settings to the builder (interceptors).
    std::function<void(grpc::ServerBuilder*)> configure = nullptr;
  };

  // FailedPrecondition where the address is in use; a Unix socket without a listener is replaced.
  // InvalidArgument for an address that cannot be resolved. The health service answers NOT_SERVING
  // until SetServing(true).
  static StatusOr<std::unique_ptr<Server>> Start(const Config& config);
  ~Server();  // Shutdown(0 s)

  // The bound address; its port is never 0.
  const Endpoint& endpoint() const { return endpoint_; }
  // Sets the health status of the server as a whole and of every service.
  void SetServing(bool serving);
  // Sets the health status of one service by name; "" is the server as a whole.
  void SetServing(const std::string& service, bool serving);
  // Refuses new calls, lets those in flight run for `grace`, then cancels them. Blocks until all
  // handlers have returned; a second call returns at once.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  Endpoint endpoint_;
};

}  // namespace mt::rpc
