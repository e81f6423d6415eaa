// The ranks of one job and epoch on this node, from their start, or their adoption from an earlier
// agent, until the coordinator knows that all of them are gone. It wires the parts that each do one
// thing: rank_set.h (which ranks there are), report_relay.h (numbered reports), stall_watch.h (who
// makes no progress), fault_attribution.h (who is to blame), rank_teardown.h (how the others are
// ended), pending_commands.h (commands for rank 0), event_log.h (the job's event file); and it
// reports the ranks' states. Loop thread only; no I/O but through its seams.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/control/numbers.h"
#include "worker/node/gpus/slot_table.h"
#include "worker/node/loop/event_loop.h"
#include "worker/node/outbox/outbox.h"
#include "worker/node/ranks/allocation_store.h"
#include "worker/node/ranks/fault_attribution.h"
#include "worker/node/ranks/pending_commands.h"
#include "worker/node/ranks/progress_watch.h"
#include "worker/node/ranks/rank_launcher.h"
#include "worker/node/ranks/rank_links.h"
#include "worker/node/ranks/rank_set.h"
#include "worker/node/ranks/rank_teardown.h"
#include "worker/node/ranks/report_relay.h"
#include "worker/node/ranks/stall_watch.h"
#include "worker/node/tensorboard/event_log.h"

namespace megatrain::v1 {
class Assign;
class Command;
class HeldAllocation;
class RankHello;
class RankMessage;
class RankStatus;
class StepRecord;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

// Defaults come from the one table of numbers (common/control/numbers.h); tests replace them.
struct RankLimits {
  // P1, P2: how long ranks may make no progress, and how often that is checked.
  ProgressLimits progress;
  std::chrono::milliseconds progress_look = control::kProgressLook;
  // P3: ranks that were told to exit are killed after this.
  std::chrono::milliseconds abort_kill = control::kAbortKill;
  int fault_log_lines = 20;  // sent with the report of a faulted rank
};

// What the ranks of this node have in common. Folders are absolute.
struct NodeFacts {
  std::string data_root;
  std::string checkpoint_root;
  std::string log_root;
  std::string cache_root;
  std::string address;     // where ranks listen for collectives
  std::string rank_state;  // each allocation has its folder below it
  // The id in the marker file of the checkpoint root, as it is now; empty: not known. May be null.
  std::function<std::string()> checkpoint_root_id;
};

class Allocation {
 public:
  // Pointers are not owned and must outlive the allocation.
  struct Deps {
    EventLoop* loop;
    const base::Clock* clock;
    RankLauncher* launcher;
    RankLinks* links;
    AllocationStore* store;
    EventFiles* event_files;  // nullptr: no job has event files
    const NodeFacts* node;
    const SlotTable* slots;
    RankLimits limits;
    std::function<LaunchId()> next_launch;
    // Sends a report (job and epoch are filled in) or a step of this job to the coordinator.
    std::function<void(megatrain::v1::WorkerMessage, Outbox::Acked)> report;
    std::function<void(const megatrain::v1::StepRecord&, Outbox::Acked)> report_step;
    // Calls the second argument once the memory of these GPUs is free, or has not become free in
    // time.
    std::function<void(const std::vector<std::string>&, std::function<void()>)> await_free;
    // The slot is to be given to nobody any more (RankExitMeaning::slot_is_done). May be null.
    std::function<void(int slot, const std::string& why)> slot_done;
    std::function<void()> on_gone;     // posted once gone() is true
    std::function<void()> on_settled;  // posted once the coordinator knows that it is gone
  };

  Allocation(Deps deps, const megatrain::v1::AllocationRecord& record);
  ~Allocation();

  const std::string& job_uid() const;
  int64_t epoch() const;
  const megatrain::v1::Assign& assign() const;
  // True until gone(): while ranks run, and until the memory of their GPUs is free.
  bool UsesSlot(int slot) const { return !gone_ && ranks_.UsesSlot(slot); }
  bool UsesGpu(const std::string& uuid) const { return !gone_ && ranks_.UsesGpu(uuid); }
  const RankSet& ranks() const { return ranks_; }
  // Every rank has ended and was reported, and the memory of their GPUs is free (P4).
  bool gone() const { return gone_; }
  // The job's resilience.on_agent_exit is `stop`.
  bool stops_with_agent() const;

  // Starts every rank. One that cannot be started counts as a rank that failed.
  void StartRanks();
  // Takes over the ranks that an earlier agent has started; those that have ended meanwhile are
  // reported as any others. If `damage` says why they cannot be managed, they are ended as failed.
  void AdoptRanks(const std::string& damage);

  // A rank calls. Errors are those of RankSet::Attach; the link should then be refused.
  Status Attach(LinkId link, const megatrain::v1::RankHello& hello);
  // A message of an attached link, other than rendezvous, which the agent relays.
  void OnRankMessage(LinkId link, const megatrain::v1::RankMessage& message);
  void OnLinkClosed(LinkId link);
  void OnRankGone(LaunchId launch, const RankExit& exit);

  // Passes a command to world rank 0, at once or when it calls; again if it calls again before it
  // has reported the outcome. kFailedPrecondition if rank 0 is not on this node or has ended.
  Status PassCommand(const megatrain::v1::Command& command);
  // Ends all ranks: SIGTERM, SIGKILL after P5. `asked`: the coordinator wants it, and the ranks end
  // DONE; otherwise they end FAULTED(INTERNAL) with this reason.
  void End(const std::string& reason, bool asked);

  void Describe(megatrain::v1::HeldAllocation* out) const;

 private:
  void Save();
  void TakeUnsent(LocalRank* rank, const std::string& bytes);
  void Forward(LocalRank* rank, const megatrain::v1::RankMessage& message);
  void NoteFault(LocalRank* rank, const megatrain::v1::RankMessage& message);
  void Abort(const std::string& reason);
  void ReportState(const LocalRank& rank);
  void ReportConclusion(const RankConclusion& conclusion);
  void FillStatus(const LocalRank& rank, megatrain::v1::RankStatus* status) const;
  void BecomeGoneIfAllAre();
  void BecomeGone();

  const Deps deps_;
  const std::unique_ptr<megatrain::v1::AllocationRecord> record_;
  RankSet ranks_;
  StallWatch stalls_;
  ReportRelay relay_;
  RankTeardown teardown_;
  FaultAttribution faults_;
  PendingCommands commands_;
  EventLog events_;
  bool gone_ = false;
};

}  // namespace mt::node
