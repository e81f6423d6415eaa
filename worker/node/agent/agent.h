// The core of the worker agent: handles the coordinator's assignments and commands and the messages
// of this node's ranks. Its seams (loop, clock, coordinator link, rank links, launcher, store, GPU
// probe) are passed in, so that tests replace every one of them. Loop thread only; no call blocks
// but for the writes of the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "worker/node/agent/activity_relay.h"
#include "worker/node/agent/allocation_set.h"
#include "worker/node/agent/coordinator_session.h"
#include "worker/node/agent/epoch_relay.h"
#include "worker/node/agent/log_service.h"
#include "worker/node/agent/obedience.h"
#include "worker/node/agent/reading_relay.h"
#include "worker/node/agent/rendezvous_relay.h"
#include "worker/node/agent/secret_file.h"
#include "worker/node/agent/worker_metrics.h"
#include "worker/node/gpus/gpu_guard.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/gpus/node_slots.h"
#include "worker/node/ranks/allocation.h"
#include "worker/node/ranks/rank_launcher.h"
#include "worker/node/ranks/rank_links.h"

namespace megatrain::v1 {
class AllocationRecord;
class Assign;
class Command;
}  // namespace megatrain::v1

namespace mt::node {

class Agent final : private CoordinatorSession::Listener,
                    private RankLinks::Listener,
                    private RankLauncher::Listener {
 public:
  struct Limits {
    SessionLimits session;
    RankLimits ranks;
    GpuLimits gpus;
    LogLimits logs;
    // Between two messages that tell the coordinator what ranks do now (L9).
    std::chrono::milliseconds readings = control::kRankBeatInterval;
    // Between two looks for GPUs that could be offered since the start.
    std::chrono::milliseconds gpu_survey{300'000};
  };
  struct Config {
    std::string node_name;
    std::string worker_uid;  // a new one at every start
    std::string boot_id;
    std::string machine_id;  // base::MachineId
    std::string version;
    int cores = 1;
    int64_t memory_bytes = 0;
    GpuOffer gpus;
    std::string gpus_wanted = kNoGpus;    // --gpus
    std::function<Status()> cuda_module;  // OK if ranks find the CUDA module; null: they do
    int cpu_slots = 1;
    std::string cpu_problem;  // see NodeSlots::Deps
    std::map<std::string, std::string> labels;
    std::string http_endpoint;  // of /metrics; empty: none
    NodeFacts node;
    ClusterState cluster;  // as cluster_store has it
    Limits limits;
  };
  // Not owned; must outlive the agent.
  struct Seams {
    EventLoop* loop;
    const base::Clock* clock;
    CoordinatorLink* coordinator;
    RankLinks* ranks;
    RankLauncher* launcher;
    AllocationStore* store;
    ClusterStore* cluster_store = nullptr;  // may be null in tests: kept in memory
    WorkerMetrics* metrics;
    GpuProbe* gpu_probe = nullptr;      // may be null if no GPU is offered
    SecretFile* secret = nullptr;       // null: a secret that is given is not kept
    EventFiles* event_files = nullptr;  // null: jobs have no event files
  };

  Agent(Config config, Seams seams);
  ~Agent() override;

  // Takes over the ranks of an earlier agent; call before Start. `damage`: why they cannot be
  // managed and are ended instead; the record then holds only what folder names tell.
  void Adopt(const megatrain::v1::AllocationRecord& record, const std::string& damage);
  // Connects to the coordinator.
  void Start();
  // Ends the ranks of jobs with on_agent_exit: stop and leaves the others to the next agent; waits
  // up to two seconds for the last reports to be acknowledged, closes the session, then calls
  // `done` on the loop.
  void Shutdown(std::function<void()> done);

  // Tells the coordinator of the slots, and of the checkpoint root's identity, as they are now.
  void ReportSlots();

  // Allocations that are not gone.
  int num_allocations() const { return allocations_.num_live(); }
  const NodeSlots& slots() const { return slots_; }
  const CoordinatorSession& session() const { return session_; }
  const Obedience& obedience() const { return obedience_; }

 private:
  using JobEpoch = AllocationSet::JobEpoch;

  // CoordinatorSession::Listener
  void FillRegister(megatrain::v1::Register* message) override;
  Status CheckRegistered(const megatrain::v1::Registered& registered) override;
  void OnSessionClosed(const Status& why) override;
  uint64_t HeldDigest() const override { return allocations_.HeldDigest(); }
  void OnRegistered() override;
  void OnSecretGiven(const std::string& secret, int64_t generation) override;
  void OnDisconnected() override;
  void OnHeartbeatAnswered(std::chrono::nanoseconds round_trip) override;
  void OnCoordinatorMessage(const megatrain::v1::CoordinatorMessage& message) override;
  // RankLinks::Listener
  void OnRankMessage(LinkId link, const megatrain::v1::RankMessage& message) override;
  void OnRankClosed(LinkId link) override;
  // RankLauncher::Listener
  void OnRankGone(LaunchId launch, const RankExit& exit) override;

  void OnAssign(const megatrain::v1::Assign& assign);
  // OK if these ranks can be started here now.
  Status CheckAssign(const megatrain::v1::Assign& assign);
  void OnCommand(const megatrain::v1::Command& command);
  // Carries out the command, or passes it to rank 0.
  Status Execute(const megatrain::v1::Command& command);
  Status Attach(LinkId link, const megatrain::v1::RankMessage& message);
  // Registers the allocation under its job and epoch, without starting it.
  Allocation* AddAllocation(const megatrain::v1::AllocationRecord& record);
  void Report(megatrain::v1::WorkerMessage message, Outbox::Acked acked = {});
  void OnGone(const JobEpoch& job);
  void OnSettled(const JobEpoch& job);
  void FinishShutdown();

  const Config config_;
  const Seams seams_;
  Obedience obedience_;
  CoordinatorSession session_;
  RendezvousRelay rendezvous_;
  EpochRelay epochs_;
  ActivityRelay activities_;
  ReadingRelay readings_;
  LogService logs_;
  NodeSlots slots_;
  bool was_registered_ = false;
  AllocationSet allocations_;         // until settled
  std::map<LinkId, JobEpoch> links_;  // attached
  LaunchId next_launch_ = 1;
  std::function<void()> shutdown_done_;
  base::MonotonicTime shutdown_deadline_;
};

}  // namespace mt::node
