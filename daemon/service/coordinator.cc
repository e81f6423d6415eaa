// Construction in the order of dependencies, shutdown in the reverse order, and the probes.
#include "daemon/service/coordinator.h"

#include <atomic>
#include <utility>
#include <vector>

#include <grpcpp/impl/codegen/service_type.h>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/mutex.h"
#include "common/base/notify.h"
#include "common/http/server.h"
#include "common/metrics/registry.h"
#include "common/rpc/reason.h"
#include "common/rpc/server.h"
#include "common/rpc/version.h"
#include "daemon/api/api.h"
#include "daemon/authority/authority.h"
#include "daemon/backup/backup_runner.h"
#include "daemon/core/core.h"
#include "daemon/ledger/ledger.h"
#include "daemon/meters/coordinator_meter.h"
#include "daemon/meters/timed_store.h"
#include "daemon/service/call_meter.h"
#include "daemon/service/core_loop.h"
#include "daemon/service/health_port.h"
#include "daemon/service/history_reader.h"
#include "daemon/service/user_services.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/store/store_folder.h"
#include "daemon/telemetry/history.h"
#include "megatrain/v1/api.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

constexpr std::chrono::seconds kShutdownGrace{2};
// The loop turns every 100 ms, but a sync of the store on a busy disk may take seconds.
constexpr std::chrono::seconds kLoopStuckAfter{15};
constexpr std::chrono::seconds kStatusInterval{10};

Status CheckAddress(const char* flag, const rpc::Endpoint& endpoint, bool insecure) {
  if (insecure || rpc::IsLoopback(endpoint)) return OkStatus();
  return base::InvalidArgument(
      "{} {} can be reached from other machines, in plain text and by anyone; give --insecure if "
      "that is meant, or listen on 127.0.0.1",
      flag, endpoint.ToString());
}

http::Response Probe(bool good, std::string_view what) {
  return {.status = good ? 200 : 503, .body = fmt::format("{}\n", good ? "ok" : what)};
}

}  // namespace

// The answer of GetInfo. Ports are known only after the servers have bound them. Thread-safe.
struct Info {
  base::Mutex mu;
  rpc::Endpoint endpoint GUARDED_BY(mu);
  rpc::Endpoint http_endpoint GUARDED_BY(mu);
  v1::ServerInfo standing GUARDED_BY(mu);  // cluster, term, orders: as of the core's last turn
  std::string coordinator_uid;
  int64_t started_us = 0;

  void Fill(v1::ServerInfo* out) {
    const base::MutexLock lock(&mu);
    *out = standing;
    out->set_version(std::string(rpc::Version()));
    out->set_coordinator_uid(coordinator_uid);
    out->set_endpoint(endpoint.ToString());
    out->set_insecure(!rpc::IsLoopback(endpoint) || !rpc::IsLoopback(http_endpoint));
    out->set_http_endpoint(http_endpoint.ToString());
    out->set_started_us(started_us);
  }
  void Stand(Core& core) {
    const base::MutexLock lock(&mu);
    core.api().admin().Describe(&standing);
  }
};

// In the order of construction: each member depends only on earlier ones.
struct Coordinator::Parts {
  std::shared_ptr<Info> info = std::make_shared<Info>();
  base::Notifier* notifier = nullptr;
  std::atomic<std::chrono::steady_clock::rep> last_turn{0};
  std::atomic<bool> serving{false};
  std::chrono::steady_clock::time_point next_status{};

  std::unique_ptr<SqliteStore> store;
  std::unique_ptr<History> history;
  metrics::Registry registry;
  std::unique_ptr<CoordinatorMeter> meter;
  std::unique_ptr<CallMeter> calls;
  std::unique_ptr<TimedStore> timed_store;
  std::unique_ptr<Core> core;
  std::unique_ptr<CoreLoop> loop;
  std::unique_ptr<HistoryReader> reader;
  std::unique_ptr<BackupRunner> backups;
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<http::Server> http;
  std::unique_ptr<HealthPort> health;

  void OnTurn(Core& the_core);
  bool Alive() const;
  bool Ready() const { return serving && Alive(); }
  Status StartCore(const Config& config);
  Status StartServers(const Config& config);
};

void Coordinator::Parts::OnTurn(Core& the_core) {
  const auto now = std::chrono::steady_clock::now();
  last_turn = now.time_since_epoch().count();
  info->Stand(the_core);
  meter->Update(the_core);
  if (notifier == nullptr) return;
  notifier->Ping();
  if (!serving || now < next_status) return;
  next_status = now + kStatusInterval;
  const std::string& why = the_core.authority().Why();
  notifier->Status(fmt::format(
      "{}{} live jobs, {} workers", why.empty() ? "" : fmt::format("GIVES NO ORDERS ({}); ", why),
      the_core.ledger().LiveJobs().size(), the_core.ledger().Workers().size()));
}

bool Coordinator::Parts::Alive() const {
  const std::chrono::steady_clock::time_point turned{
      std::chrono::steady_clock::duration(last_turn.load())};
  return std::chrono::steady_clock::now() - turned < kLoopStuckAfter;
}

Status Coordinator::Parts::StartCore(const Config& config) {
  notifier = config.notifier;
  if (config.create_store && CheckNoStore(config.state_dir).ok()) {
    RETURN_IF_ERROR(SqliteStore::Create(config.state_dir));
  }
  ASSIGN_OR_RETURN(store, SqliteStore::Open(config.state_dir));
  history = std::make_unique<History>(base::JoinPath(config.state_dir, "history"));
  meter = std::make_unique<CoordinatorMeter>(
      CoordinatorMeter::Config{.registry = &registry,
                               .clock = base::Clock::Real(),
                               .history = history.get(),
                               .state_dir = config.state_dir,
                               .version = std::string(rpc::Version())});
  calls = std::make_unique<CallMeter>(&registry);
  history->OnFlush([this](double seconds) { meter->OnHistoryFlush(seconds); });
  timed_store = std::make_unique<TimedStore>(store.get(),
                                             [this](double seconds) { meter->OnCommit(seconds); });
  core =
      std::make_unique<Core>(timed_store.get(), base::Clock::Real(), history.get(), config.silence);
  RETURN_IF_ERROR(core->Recover());
  info->Stand(*core);
  last_turn = std::chrono::steady_clock::now().time_since_epoch().count();
  loop = std::make_unique<CoreLoop>(core.get(), config.on_store_failure,
                                    [this](Core& the_core) { OnTurn(the_core); });
  reader = std::make_unique<HistoryReader>();
  backups = std::make_unique<BackupRunner>(store.get(), config.state_dir);
  return OkStatus();
}

Status Coordinator::Parts::StartServers(const Config& config) {
  info->coordinator_uid = core->uid();
  info->started_us = base::ToUnixMicros(base::Clock::Real()->WallNow());
  services = MakeUserServices(loop.get(), reader.get(), backups.get(),
                              [info = info](v1::ServerInfo* out) { info->Fill(out); });
  services.push_back(MakeWorkerService(loop.get()));
  rpc::Server::Config grpc_config{
      .listen = config.listen, .services = {}, .configure = [this](grpc::ServerBuilder* builder) {
        calls->Install(builder);
      }};
  for (const auto& service : services) grpc_config.services.push_back(service.get());
  auto grpc_server = rpc::Server::Start(grpc_config);
  if (!grpc_server.ok()) return std::move(grpc_server).status();
  server = std::move(grpc_server).value();
  http::Server::Config http_config{.listen = config.http_listen, .handlers = {}};
  http_config.handlers["/livez"] = [this] { return Probe(Alive(), "the core's loop is stuck"); };
  http_config.handlers["/readyz"] = [this] { return Probe(Ready(), "not serving"); };
  http_config.handlers["/metrics"] = [this] {
    meter->UpdateProcess();
    return http::Response{.content_type = metrics::kContentType, .body = registry.Text()};
  };
  auto http_server = http::Server::Start(std::move(http_config));
  if (!http_server.ok()) return std::move(http_server).status();
  http = std::move(http_server).value();
  {
    const base::MutexLock lock(&info->mu);
    info->endpoint = server->endpoint();
    info->http_endpoint = http->endpoint();
  }
  if (!config.health_listen.has_value()) return OkStatus();
  auto health_port =
      HealthPort::Start(*config.health_listen,
                        {.alive = [this] { return Alive(); }, .ready = [this] { return Ready(); }});
  if (!health_port.ok()) return std::move(health_port).status();
  health = std::move(health_port).value();
  return OkStatus();
}

Coordinator::Coordinator(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Coordinator::~Coordinator() { Stop(); }

Status Coordinator::Check(const Config& config) {
  RETURN_IF_ERROR(CheckAddress("--listen", config.listen, config.insecure));
  RETURN_IF_ERROR(CheckAddress("--http-listen", config.http_listen, config.insecure));
  return CheckLimits(config.silence);
}

StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const Config& config) {
  RETURN_IF_ERROR(Check(config));
  std::unique_ptr<Coordinator> out(new Coordinator(std::make_unique<Parts>()));
  RETURN_IF_ERROR(out->parts_->StartCore(config));
  RETURN_IF_ERROR(out->parts_->StartServers(config));
  out->parts_->server->SetServing(true);
  out->parts_->serving = true;
  return out;
}

const rpc::Endpoint& Coordinator::endpoint() const { return parts_->server->endpoint(); }
const rpc::Endpoint& Coordinator::http_endpoint() const { return parts_->http->endpoint(); }
std::optional<rpc::Endpoint> Coordinator::health_endpoint() const {
  if (parts_->health == nullptr) return std::nullopt;
  return parts_->health->endpoint();
}

void Coordinator::Post(std::function<void(Core&)> task) { parts_->loop->Post(std::move(task)); }

void Coordinator::Stop() {
  Parts& parts = *parts_;
  if (parts.loop == nullptr) return;
  parts.serving = false;
  if (parts.server != nullptr) {
    parts.server->SetServing(false);
    parts.loop->Post([](Core& core) {
      core.Shutdown(rpc::WithReason(base::Unavailable("the coordinator is stopping; jobs go on"),
                                    rpc::reason::kShuttingDown));
    });
    // Until the server has shut down, handlers may still post to the loop and the reader.
    parts.server->Shutdown(kShutdownGrace);
  }
  parts.backups->Stop();
  parts.reader->Stop();
  parts.loop->Stop();
  // The probes are answered until this point.
  parts.health.reset();
  parts.http.reset();
  parts.server.reset();
  parts.loop.reset();
}

}  // namespace mt::daemon
