#include "daemon/service/coordinator.h"

#include <utility>
#include <vector>

#include <grpcpp/impl/codegen/service_type.h>

#include "common/base/clock.h"
#include "common/rpc/reason.h"
#include "common/rpc/server.h"
#include "daemon/core/core.h"
#include "daemon/service/core_loop.h"
#include "daemon/service/user_services.h"
#include "daemon/store/sqlite_store.h"

namespace mt::daemon {
namespace {

constexpr std::chrono::seconds kShutdownGrace{2};

}  // namespace

// In the order of construction: each needs the ones before it.
struct Coordinator::Parts {
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
  parts->services = MakeUserServices(parts->loop.get());
  parts->services.push_back(MakeWorkerService(parts->loop.get()));
  rpc::Server::Config server{.listen = config.listen, .services = {}};
  for (const auto& service : parts->services) server.services.push_back(service.get());
  auto started = rpc::Server::Start(server);
  if (!started.ok()) return std::move(started).status();
  parts->server = std::move(started).value();
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
