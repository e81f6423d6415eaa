// mt-worker: the agent of a node. Connects the core (agent.h) to the real implementations of its
// seams: Boost.Asio, gRPC to the coordinator, a Unix socket for ranks, mt-shim for processes.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/machine_id.h"
#include "common/base/notify.h"
#include "common/control/epoch.h"
#include "common/control/numbers.h"
#include "common/gpu/cuda_module.h"
#include "common/http/server.h"
#include "common/metrics/registry.h"
#include "common/rpc/version.h"
#include "megatrain/v1/agent_state.pb.h"
#include "worker/node/agent/agent.h"
#include "worker/node/agent/blas_check.h"
#include "worker/node/agent/cache_watch.h"
#include "worker/node/agent/cluster_file.h"
#include "worker/node/agent/grpc_coordinator_link.h"
#include "worker/node/agent/grpc_rank_server.h"
#include "worker/node/agent/health.h"
#include "worker/node/agent/options.h"
#include "worker/node/agent/pulse.h"
#include "worker/node/agent/root_watch.h"
#include "worker/node/agent/secret_file.h"
#include "worker/node/agent/storage_watch.h"
#include "worker/node/agent/worker_metrics.h"
#include "worker/node/gpus/gpu_offer.h"
#include "worker/node/gpus/numa.h"
#include "worker/node/gpus/probe_process.h"
#include "worker/node/loop/asio_event_loop.h"
#include "worker/node/ranks/allocation_dir.h"
#include "worker/node/ranks/shim_launcher.h"
#include "worker/node/ranks/state_dir.h"
#include "worker/node/ranks/stop_ranks.h"
#include "worker/node/tensorboard/event_file_thread.h"

namespace mt::node {
namespace {

int64_t MemoryBytes() {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

// OK if this node's ranks find the CUDA module: they look beside the file of mt-rank, with symbolic
// links resolved.
Status FindModule(const AgentOptions& options) {
  std::error_code ignored;
  const auto rank = std::filesystem::weakly_canonical(options.rank_binary, ignored);
  return gpu::FindCudaModule(rank.parent_path().string()).status();
}

// Surveys the GPUs of this node through mt-gpu-probe: a driver that hangs costs the deadline and
// the GPUs, not the worker.
GpuOffer FindGpus(const AgentOptions& options) {
  StatusOr<GpuInventory> found = base::NotFound("not looked for");
  if (options.gpus != kNoGpus) {
    found =
        NeedModule(ProbeNow(options.probe_binary, control::kDeviceProbeLimit), FindModule(options));
  }
  const cpu_set_t usable = OwnCpus();
  GpuOffer offer = OfferGpus(options.gpus, found,
                             [&usable](int numa_node) { return CpusOfNode(numa_node, usable); });
  for (const GpuSlot& gpu : offer.gpus) {
    log::Info("GPU found", {{"gpu", gpu.device.uuid},
                            {"name", gpu.device.name},
                            {"memory_bytes", gpu.device.memory_bytes},
                            {"numa_node", gpu.device.numa_node},
                            {"cores", gpu.cpus}});
  }
  if (!offer.problem.empty()) {
    log::Error(
        "GPUs are not offered as they should be: start the worker again once it is put right",
        {{"why", offer.problem}});
  }
  return offer;
}

// Why ranks must not compute on this node's processor; looked for where there are CPU slots.
std::string FindCpuProblem(const AgentOptions& options, int cpu_slots) {
  if (cpu_slots == 0) return "";
  std::string problem = FindBlasProblem(options.rank_binary, control::kBlasCheckLimit);
  if (!problem.empty()) {
    log::Error("CPU slots take no job: start the worker again once it is put right",
               {{"why", problem}});
  }
  return problem;
}

Agent::Config MakeConfig(const AgentOptions& options, const StateDir& state,
                         const std::string& http_endpoint, GpuOffer gpus, const RootWatch* root,
                         ClusterState cluster) {
  const int cpu_slots = options.cpu_slots.value_or(DefaultCpuSlots(gpus, options.cores));
  Agent::Limits limits;
  limits.ranks.progress.step = std::chrono::seconds(options.stall_after);
  limits.ranks.progress.frozen = std::chrono::seconds(options.frozen_after);
  return {.node_name = options.node,
          .worker_uid = base::NewUid(),
          .boot_id = base::BootId(),
          .machine_id = base::MachineId(),
          .version = std::string(rpc::Version()),
          .cores = options.cores,
          .memory_bytes = MemoryBytes(),
          .gpus = std::move(gpus),
          .gpus_wanted = options.gpus,
          .cuda_module = [options] { return FindModule(options); },
          .cpu_slots = cpu_slots,
          .cpu_problem = FindCpuProblem(options, cpu_slots),
          .labels = options.labels,
          .http_endpoint = http_endpoint,
          .node = {.data_root = options.data_root,
                   .checkpoint_root = options.checkpoint_root,
                   .log_root = options.log_root,
                   .cache_root = options.cache_root,
                   .address = options.address,
                   .rank_state = state.allocations(),
                   .checkpoint_root_id = [root] { return root->id(); }},
          .cluster = std::move(cluster),
          .limits = limits};
}

Status StopLeftRanks(const AgentOptions& options) {
  ASSIGN_OR_RETURN(const StateDir state, StateDir::Open(options.state));
  ASSIGN_OR_RETURN(const std::vector<StoppedRank> stopped,
                   StopRanks(state.allocations(), control::kKillGrace));
  for (const StoppedRank& rank : stopped) {
    fmt::print("ended rank {} of job {} epoch {} (pid {}{})\n", rank.rank, rank.job_uid,
               control::EpochText(rank.epoch), rank.pid, rank.killed ? ", killed" : "");
  }
  if (stopped.empty()) fmt::print("no ranks are running\n");
  return OkStatus();
}

Status Join(const AgentOptions& options) {
  ASSIGN_OR_RETURN(const StateDir state, StateDir::Open(options.state));
  RETURN_IF_ERROR(JoinCluster(options.state, options.join));
  fmt::print("the agent of {} belongs to cluster {} from its next start on\n", options.state,
             options.join);
  return OkStatus();
}

// The server of /metrics and probes; nullptr if there is none to be.
StatusOr<std::unique_ptr<http::Server>> ServeHttp(const AgentOptions& options,
                                                  const metrics::Registry* registry,
                                                  const Health* health) {
  if (!options.http_listen) return nullptr;
  http::Server::Config config{.listen = *options.http_listen};
  config.handlers["/metrics"] = [registry] {
    return http::Response{.content_type = metrics::kContentType, .body = registry->Text()};
  };
  config.handlers["/livez"] = [health] { return health->Live(); };
  config.handlers["/readyz"] = [health] { return health->Ready(); };
  auto server = http::Server::Start(std::move(config));
  if (server.ok() || options.http_asked) return server;
  log::Warn("no metrics: give --http-listen a free port",
            {{"why", base::Message(server.status())}});
  return nullptr;
}

// The server's address as other hosts reach it; empty if there is no server.
std::string HttpEndpoint(const AgentOptions& options, const http::Server* server) {
  if (server == nullptr) return "";
  rpc::Endpoint endpoint = server->endpoint();
  if (endpoint.host == "0.0.0.0" || endpoint.host == "::") endpoint.host = options.address;
  return endpoint.ToString();
}

base::Notifier::Environment NotifyEnvironment() {
  return {.notify_socket = std::getenv("NOTIFY_SOCKET"),  // NOLINT(concurrency-mt-unsafe): at start
          .watchdog_usec = std::getenv("WATCHDOG_USEC"),  // NOLINT(concurrency-mt-unsafe): at start
          .watchdog_pid = std::getenv("WATCHDOG_PID"),    // NOLINT(concurrency-mt-unsafe): at start
          .pid = ::getpid()};
}

void LogStart(const AgentOptions& options, const Agent& agent, const std::string& http) {
  const int gpu_slots = agent.slots().table().num_gpus();
  log::Info("mt-worker has started", {{"node", options.node},
                                      {"gpu_slots", gpu_slots},
                                      {"cpu_slots", agent.slots().size() - gpu_slots},
                                      {"coordinator", options.coordinator.ToString()},
                                      {"state", options.state},
                                      {"http", http},
                                      {"version", rpc::Version()}});
  if (options.insecure) {
    log::Warn(
        "--insecure: what this node says and serves is plain text, for anyone who can reach it",
        {{"address", options.address}, {"http", http}});
  }
}

// A checkpoint root that was named is never made: where it is missing, it is a mount that did not
// come up.
Status MakeRoots(const AgentOptions& options) {
  RETURN_IF_ERROR(base::MakeDirs(options.log_root));
  RETURN_IF_ERROR(base::MakeDirs(options.cache_root));
  return options.own_checkpoint_root ? base::MakeDirs(options.checkpoint_root) : OkStatus();
}

std::map<std::string, std::string> WatchedFolders(const AgentOptions& options) {
  return {{"data", options.data_root},
          {"checkpoint", options.checkpoint_root},
          {"log", options.log_root},
          {"cache", options.cache_root},
          {"state", options.state}};
}

// Both happen once the loop runs.
void AdoptAndStart(AsioEventLoop* loop, Agent* agent, Pulse* pulse, AllocationDir* store) {
  for (const AllocationDir::Found& found : store->LoadAll()) {
    agent->Adopt(*found.record, found.damage);
  }
  // Behind the tasks of Adopt, so that ranks that have ended meanwhile are registered as ended.
  loop->Post([agent, pulse] {
    agent->Start();
    pulse->Start();
  });
}

void StopOnSignals(AsioEventLoop* loop, Agent* agent, base::Notifier* notifier) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    loop->OnSignal(signal_number, [agent, loop, notifier] {
      log::Info("stopping");
      notifier->Stopping("stopping");
      agent->Shutdown([loop] { loop->Stop(); });
    });
  }
}

// Runs the task, once it is set, on the loop.
std::function<void()> OnLoop(AsioEventLoop* loop, const std::function<void()>* task) {
  return [loop, task] {
    loop->Post([task] {
      if (*task) (*task)();
    });
  };
}

Status RunAgent(const AgentOptions& options) {
  base::Notifier notifier(NotifyEnvironment());
  ASSIGN_OR_RETURN(StateDir state, StateDir::Open(options.state));
  ClusterFile cluster_file(options.state);
  ASSIGN_OR_RETURN(ClusterState cluster, cluster_file.Load());
  RETURN_IF_ERROR(MakeRoots(options));
  ASSIGN_OR_RETURN(const std::string socket, state.SocketPath());

  metrics::Registry registry;
  Health health(base::Clock::Real());
  ASSIGN_OR_RETURN(const std::unique_ptr<http::Server> http,
                   ServeHttp(options, &registry, &health));
  const CacheWatch cache(options.cache_root, options.cache_limit);
  const StorageWatch storage(WatchedFolders(options), {{"node", options.node}}, &registry);
  AsioEventLoop loop;
  WorkerMetrics metrics({.node = options.node, .version = std::string(rpc::Version())}, &loop,
                        &registry);
  GrpcRankServer ranks(&loop);
  ShimLauncher launcher(&loop, {.shim_binary = options.shim_binary,
                                .rank_binary = options.rank_binary,
                                .socket = "unix:" + socket,
                                .node = options.node});
  AllocationDir store(state.allocations());
  ASSIGN_OR_RETURN(SecretFile secret, SecretFile::Open(state.identity(), options.node));
  GrpcCoordinatorLink coordinator(&loop, options.coordinator);
  ProbeProcess gpu_probe(&loop, options.probe_binary, control::kDeviceProbeLimit);
  EventFileThread event_files(base::Clock::Real());
  std::function<void()> root_changed;  // set before the agent starts
  const RootWatch root({.root = options.checkpoint_root,
                        .node = options.node,
                        .changed = OnLoop(&loop, &root_changed)});
  Agent agent(MakeConfig(options, state, HttpEndpoint(options, http.get()), FindGpus(options),
                         &root, std::move(cluster)),
              {.loop = &loop,
               .clock = base::Clock::Real(),
               .coordinator = &coordinator,
               .ranks = &ranks,
               .launcher = &launcher,
               .store = &store,
               .cluster_store = &cluster_file,
               .metrics = &metrics,
               .gpu_probe = &gpu_probe,
               .secret = &secret,
               .event_files = &event_files});
  root_changed = [&agent] { agent.ReportSlots(); };
  Pulse pulse({.loop = &loop,
               .agent = &agent,
               .metrics = &metrics,
               .health = &health,
               .notifier = &notifier});
  RETURN_IF_ERROR(ranks.Listen(socket));
  StopOnSignals(&loop, &agent, &notifier);
  LogStart(options, agent, HttpEndpoint(options, http.get()));
  AdoptAndStart(&loop, &agent, &pulse, &store);
  loop.Run();
  ::unlink(socket.c_str());
  return OkStatus();
}

}  // namespace
}  // namespace mt::node

// NOLINTNEXTLINE(bugprone-exception-escape): only out of memory throws here, and ends the program.
int main(int argc, char** argv) {
  mt::node::AgentOptions options;
  mt::node::ExitNow exit_now;
  if (!mt::node::ParseAgentOptions(argc, argv, &options, &exit_now)) return exit_now.code;
  mt::log::Init({.binary = "mt-worker", .level = options.log_level});
  ::signal(SIGPIPE, SIG_IGN);
  const mt::Status status = options.stop_ranks      ? mt::node::StopLeftRanks(options)
                            : !options.join.empty() ? mt::node::Join(options)
                                                    : mt::node::RunAgent(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "mt-worker: %s\n", mt::base::Message(status).c_str());
  return 1;
}
