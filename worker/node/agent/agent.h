// The worker agent's core: what a node does with what the coordinator and its ranks say. Its seams
// (loop, clock, coordinator link, rank links, launcher) are given, so that tests hold all the ends.
// Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/node/agent/coordinator_session.h"
#include "worker/node/agent/log_service.h"
#include "worker/node/agent/rendezvous_relay.h"
#include "worker/node/agent/worker_metrics.h"
#include "worker/node/gpus/gpu_guard.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/gpus/gpu_survey.h"
#include "worker/node/gpus/slot_table.h"
#include "worker/node/ranks/allocation.h"
#include "worker/node/ranks/rank_launcher.h"
#include "worker/node/ranks/rank_links.h"

namespace megatrain::v1 {
class AllocationRecord;
class Assign;
class Command;
class Slot;
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
    std::chrono::milliseconds gpu_survey{
        300'000};  // how often GPUs that came after the start are looked for
  };
  struct Config {
    std::string node_name;
    std::string worker_uid;  // new at every start
    std::string boot_id;
    std::string version;
    int cores = 1;
    int64_t memory_bytes = 0;
    GpuOffer gpus;
    std::string gpus_wanted = kNoGpus;    // --gpus
    std::function<Status()> cuda_module;  // whether ranks find it; null: they do
    int cpu_slots = 1;
    std::map<std::string, std::string> labels;
    std::string http_endpoint;  // of /metrics; empty: none
    NodeFacts node;
    Limits limits;
  };
  struct Seams {
    EventLoop* loop;
    const base::Clock* clock;
    CoordinatorLink* coordinator;
    RankLinks* ranks;
    RankLauncher* launcher;
    AllocationStore* store;
    WorkerMetrics* metrics;
    GpuProbe* gpu_probe = nullptr;  // may be null where no GPU is offered
  };

  Agent(Config config, Seams seams);
  ~Agent() override;

  // Takes over the ranks of an earlier agent; before Start. `damage`: why they cannot be gone on
  // with and are ended instead; the record then has only what could be told without its file.
  void Adopt(const megatrain::v1::AllocationRecord& record, const std::string& damage);
  void Start();
  // Ends the ranks of jobs that say on_agent_exit: stop and leaves the others to the next agent;
  // gives the reports a moment to arrive, closes the session, then calls `done`.
  void Shutdown(std::function<void()> done);

  // With ranks that are not gone.
  int num_allocations() const;
  int num_slots() const { return slots_.size(); }
  int num_gpu_slots() const { return slots_.num_gpus(); }
  int num_used_slots() const;
  // Of each kind: GPUs, CPU slots.
  struct SlotCount {
    int used = 0;
    int free = 0;
    int out_of_order = 0;
  };
  SlotCount CountSlots(bool gpus) const;
  const CoordinatorSession& session() const { return session_; }

 private:
  using JobEpoch = std::pair<std::string, int64_t>;

  // CoordinatorSession::Listener
  void FillRegister(megatrain::v1::Register* message) override;
  void OnRegistered() override;
  void OnDisconnected() override;
  void OnHeartbeatAnswered(std::chrono::nanoseconds round_trip) override;
  void OnCoordinatorMessage(const megatrain::v1::CoordinatorMessage& message) override;
  // RankLinks::Listener
  void OnRankMessage(LinkId link, const megatrain::v1::RankMessage& message) override;
  void OnRankClosed(LinkId link) override;
  // RankLauncher::Listener
  void OnRankGone(LaunchId launch, const RankExit& exit) override;

  void OnAssign(const megatrain::v1::Assign& assign);
  // Whether these ranks can be started here now.
  Status CheckAssign(const megatrain::v1::Assign& assign);
  void OnCommand(const megatrain::v1::Command& command);
  Status Obey(const megatrain::v1::Command& command);
  Status Attach(LinkId link, const megatrain::v1::RankMessage& message);
  void Measure(const JobEpoch& job, int rank, const megatrain::v1::RankMessage& message);
  // Whether a job that wants this kind of slot may have this one now.
  Status CheckSlot(int slot, const megatrain::v1::Assign& assign) const;
  const Allocation* SlotUser(int slot) const;
  void DescribeSlot(int slot, megatrain::v1::Slot* out) const;
  void ReportSlots();
  // Why GPUs are not offered, from the start and by what has come since.
  std::string GpuProblem() const;
  // Makes it known under its job and epoch; not started.
  Allocation* AddAllocation(const megatrain::v1::AllocationRecord& record);
  void Report(megatrain::v1::WorkerMessage message, Outbox::Acked acked = {});
  void OnGone(const JobEpoch& job);
  void OnSettled(const JobEpoch& job);
  // What a stopping agent waits for: every allocation but those that it leaves running.
  bool MayStop() const;
  void FinishShutdown();

  const Config config_;
  const Seams seams_;
  CoordinatorSession session_;
  RendezvousRelay rendezvous_;
  LogService logs_;
  const SlotTable slots_;
  GpuGuard guard_;
  GpuSurvey survey_;
  bool was_registered_ = false;
  std::map<JobEpoch, std::unique_ptr<Allocation>> allocations_;  // until settled
  std::map<std::string, int64_t> newest_epoch_;                  // of every job seen, gone ones too
  std::map<LinkId, JobEpoch> links_;                             // attached
  LaunchId next_launch_ = 1;
  std::function<void()> shutdown_done_;
  base::MonotonicTime shutdown_deadline_;
};

}  // namespace mt::node
