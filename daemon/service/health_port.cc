// The probes are polled once a second, and their results are set in gRPC's standard health service.
#include "daemon/service/health_port.h"

#include <chrono>
#include <pthread.h>
#include <utility>

namespace mt::daemon {
namespace {

constexpr std::chrono::seconds kLookInterval{1};

}  // namespace

StatusOr<std::unique_ptr<HealthPort>> HealthPort::Start(const rpc::Endpoint& listen,
                                                        Probes probes) {
  auto server = rpc::Server::Start({.listen = listen, .services = {}, .health_only = true});
  if (!server.ok()) return std::move(server).status();
  return std::unique_ptr<HealthPort>(new HealthPort(std::move(server).value(), std::move(probes)));
}

HealthPort::HealthPort(std::unique_ptr<rpc::Server> server, Probes probes)
    : server_(std::move(server)), probes_(std::move(probes)) {
  Show();
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "mt-health");
}

HealthPort::~HealthPort() {
  {
    const base::MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void HealthPort::Show() {
  server_->SetServing("", probes_.alive());
  server_->SetServing(kReadyService, probes_.ready());
}

void HealthPort::Run() {
  for (;;) {
    const auto until = std::chrono::steady_clock::now() + kLookInterval;
    {
      const base::MutexLock lock(&mu_);
      while (!stopping_ && wake_.WaitUntil(&mu_, until)) {
      }
      if (stopping_) return;
    }
    Show();
  }
}

}  // namespace mt::daemon
