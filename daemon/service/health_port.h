// grpc.health.v1 alone on a port of its own, for probes that cannot speak TLS (Kubernetes' grpc
// probes). Service "" is liveness: the core's loop turns. Service "megatrain.v1.ready" is
// readiness: the store is loaded and calls are served. A thread of its own updates both about once
// a second.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/server.h"

namespace mt::daemon {

inline constexpr char kReadyService[] = "megatrain.v1.ready";

class HealthPort {
 public:
  // Both are called on the thread of this object and on the one that starts it, and must not block.
  struct Probes {
    std::function<bool()> alive;  // liveness
    // Readiness.
    std::function<bool()> ready;
  };
  // Listens when it returns; errors as rpc::Server::Start.
  static StatusOr<std::unique_ptr<HealthPort>> Start(const rpc::Endpoint& listen, Probes probes);
  ~HealthPort();
  const rpc::Endpoint& endpoint() const { return server_->endpoint(); }

 private:
  HealthPort(std::unique_ptr<rpc::Server> server, Probes probes);
  void Run();
  void Show();

  std::unique_ptr<rpc::Server> server_;
  const Probes probes_;
  base::Mutex mu_;
  base::CondVar wake_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last, since it uses all members above
};

}  // namespace mt::daemon
