#include "daemon/service/coordinator.h"

#include <utility>
#include <vector>

#include <grpcpp/impl/codegen/service_type.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/reason.h"
#include "common/rpc/server.h"
#include "common/rpc/version.h"
#include "daemon/core/core.h"
#include "daemon/service/core_loop.h"
#include "daemon/service/user_services.h"
#include "daemon/store/sqlite_store.h"
#include "megatrain/v1/api.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

constexpr std::chrono::seconds kShutdownGrace{2};

}  // namespace

// What GetInfo answers. The port is known only once the server has bound it.
struct Info {
  base::Mutex mu;
  rpc::Endpoint endpoint GUARDED_BY(mu);
  std::string http_endpoint;
  std::string coordinator_uid;
  int64_t started_us = 0;

  void Fill(v1::ServerInfo* out) {
    const base::MutexLock lock(&mu);
    out->set_version(std::string(rpc::Version()));
    out->set_coordinator_uid(coordinator_uid);
    out->set_endpoint(endpoint.ToString());
    out->set_insecure(!rpc::IsLoopback(endpoint));
    out->set_http_endpoint(http_endpoint);
    out->set_started_us(started_us);
  }
};

// In the order of construction: each needs the ones before it.
struct Coordinator::Parts {
  std::shared_ptr<Info> info = std::make_shared<Info>();
  std::unique_ptr<SqliteStore> store;
  std::unique_ptr<Core> core;
  std::unique_ptr<CoreLoop> loop;
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<rpc::Server> server;
};

Coordinator::Coordinator(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Coordinator::~Coordinator() { Stop(); }

StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const Config& config) {
  auto parts = std::make_unique<Parts>();
  ASSIGN_OR_RETURN(parts->store, SqliteStore::Open(config.state_dir));
  parts->core = std::make_unique<Core>(parts->store.get(), base::Clock::Real());
  RETURN_IF_ERROR(parts->core->Recover());
  parts->loop = std::make_unique<CoreLoop>(parts->core.get(), config.on_store_failure);
  parts->info->coordinator_uid = parts->core->uid();
  parts->info->started_us = base::ToUnixMicros(base::Clock::Real()->WallNow());
  parts->info->http_endpoint = config.http_endpoint;
  parts->services = MakeUserServices(
      parts->loop.get(), [info = parts->info](v1::ServerInfo* out) { info->Fill(out); });
  parts->services.push_back(MakeWorkerService(parts->loop.get()));
  rpc::Server::Config server{.listen = config.listen, .services = {}};
  for (const auto& service : parts->services) server.services.push_back(service.get());
  auto started = rpc::Server::Start(server);
  if (!started.ok()) return std::move(started).status();
  parts->server = std::move(started).value();
  {
    const base::MutexLock lock(&parts->info->mu);
    parts->info->endpoint = parts->server->endpoint();
  }
  parts->server->SetServing(true);
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(parts)));
}

const rpc::Endpoint& Coordinator::endpoint() const { return parts_->server->endpoint(); }

void Coordinator::Stop() {
  if (parts_->server == nullptr) return;
  parts_->server->SetServing(false);
  parts_->loop->Post([](Core& core) {
    core.Shutdown(rpc::WithReason(base::Unavailable("the coordinator is stopping; jobs go on"),
                                  rpc::reason::kShuttingDown));
  });
  // Handlers still come to the loop until the server is down.
  parts_->server->Shutdown(kShutdownGrace);
  parts_->loop->Stop();
  parts_->server.reset();
}

}  // namespace mt::daemon
