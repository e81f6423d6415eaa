// A gRPC server with this project's numbers (keepalive L2, message limit A2), the health service,
// and errors that say what to do. Owns the listening socket; services are borrowed and must outlive
// it. Plain text; listens where told, by default on loopback. Thread-safe.
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
    bool health_only = false;              // no services but the health service
    // Adds what else the server is built with (interceptors).
    std::function<void(grpc::ServerBuilder*)> configure = nullptr;
  };

  // FailedPrecondition where the port is in use; a Unix socket that nobody listens on is replaced.
  // The health service answers NOT_SERVING until SetServing(true).
  static StatusOr<std::unique_ptr<Server>> Start(const Config& config);
  ~Server();  // Shutdown(0 s)

  // As bound: the port is never 0.
  const Endpoint& endpoint() const { return endpoint_; }
  void SetServing(bool serving);
  // The health of one service by name; "" is that of the server as a whole.
  void SetServing(const std::string& service, bool serving);
  // Refuses new calls, gives those in flight `grace`, then cancels them. Returns when all handlers
  // are done.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  Endpoint endpoint_;
};

}  // namespace mt::rpc
