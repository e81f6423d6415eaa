// mt-worker: the agent of a node. Puts the core (agent.h) on its real seams: Boost.Asio, gRPC to
// the coordinator, a Unix socket for ranks, mt-shim for processes.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/rpc/control_numbers.h"
#include "common/rpc/version.h"
#include "megatrain/v1/agent_state.pb.h"
#include "worker/agent/agent.h"
#include "worker/agent/allocation_dir.h"
#include "worker/agent/asio_event_loop.h"
#include "worker/agent/grpc_coordinator_link.h"
#include "worker/agent/grpc_rank_server.h"
#include "worker/agent/options.h"
#include "worker/agent/shim_launcher.h"
#include "worker/agent/state_dir.h"
#include "worker/agent/stop_ranks.h"

namespace mt::agent {
namespace {

int64_t MemoryBytes() {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

Agent::Config MakeConfig(const Options& options, const StateDir& state) {
  return {.node_name = options.node,
          .worker_uid = base::NewUid(),
          .boot_id = base::BootId(),
          .version = std::string(rpc::Version()),
          .cores = options.cores,
          .memory_bytes = MemoryBytes(),
          .cpu_slots = options.cpu_slots,
          .labels = options.labels,
          .node = {.data_root = options.data_root,
                   .checkpoint_root = options.checkpoint_root,
                   .log_root = options.log_root,
                   .cache_root = options.cache_root,
                   .address = options.address,
                   .rank_state = state.allocations()}};
}

Status StopLeftRanks(const Options& options) {
  ASSIGN_OR_RETURN(const StateDir state, StateDir::Open(options.state));
  ASSIGN_OR_RETURN(const std::vector<StoppedRank> stopped,
                   StopRanks(state.allocations(), rpc::kKillGrace));
  for (const StoppedRank& rank : stopped) {
    fmt::print("ended rank {} of job {} epoch {} (pid {}{})\n", rank.rank, rank.job_uid, rank.epoch,
               rank.pid, rank.killed ? ", killed" : "");
  }
  if (stopped.empty()) fmt::print("no ranks are running\n");
  return OkStatus();
}

Status RunAgent(const Options& options) {
  ASSIGN_OR_RETURN(StateDir state, StateDir::Open(options.state));
  for (const std::string& folder :
       {options.checkpoint_root, options.log_root, options.cache_root}) {
    RETURN_IF_ERROR(base::MakeDirs(folder));
  }
  ASSIGN_OR_RETURN(const std::string socket, state.SocketPath());

  AsioEventLoop loop;
  GrpcRankServer ranks(&loop);
  ShimLauncher launcher(&loop, {.shim_binary = options.shim_binary,
                                .rank_binary = options.rank_binary,
                                .socket = "unix:" + socket});
  AllocationDir store(state.allocations());
  GrpcCoordinatorLink coordinator(&loop, options.coordinator);
  Agent agent(MakeConfig(options, state), {.loop = &loop,
                                           .clock = base::Clock::Real(),
                                           .coordinator = &coordinator,
                                           .ranks = &ranks,
                                           .launcher = &launcher,
                                           .store = &store});
  RETURN_IF_ERROR(ranks.Listen(socket));
  for (const int signal_number : {SIGTERM, SIGINT}) {
    loop.OnSignal(signal_number, [&agent, &loop] {
      log::Info("stopping");
      agent.Shutdown([&loop] { loop.Stop(); });
    });
  }
  log::Info("mt-worker has started", {{"node", options.node},
                                      {"cpu_slots", options.cpu_slots},
                                      {"coordinator", options.coordinator.ToString()},
                                      {"state", options.state},
                                      {"version", rpc::Version()}});
  for (const AllocationDir::Found& found : store.LoadAll()) {
    agent.Adopt(*found.record, found.damage);
  }
  // After what adopting has posted: ranks that have ended are known as such when it registers.
  loop.Post([&agent] { agent.Start(); });
  loop.Run();
  ::unlink(socket.c_str());
  return OkStatus();
}

}  // namespace
}  // namespace mt::agent

// NOLINTNEXTLINE(bugprone-exception-escape): only out of memory throws here, and ends the program.
int main(int argc, char** argv) {
  mt::agent::Options options;
  mt::agent::ExitNow exit_now;
  if (!mt::agent::ParseOptions(argc, argv, &options, &exit_now)) return exit_now.code;
  mt::log::Init({.binary = "mt-worker", .level = options.log_level});
  ::signal(SIGPIPE, SIG_IGN);
  const mt::Status status =
      options.stop_ranks ? mt::agent::StopLeftRanks(options) : mt::agent::RunAgent(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "mt-worker: %s\n", mt::base::Message(status).c_str());
  return 1;
}
