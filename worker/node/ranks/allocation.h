// The ranks of one job and epoch on this node: starts them or takes them over from an earlier
// agent, follows their states, reports how each ended, and ends the others when one fails. Lives
// until the coordinator knows that all of it is gone. Loop thread only; no I/O but through its
// seams.
//
// Who is at fault. A rank that ends by a signal, or with an exit code or report of its own, is a
// culprit and reported FAULTED. A rank that ends with 75 (transient: it lost a peer) is a
// consequence as long as a culprit may still show up: its report waits until one does (then it is
// reported DONE, "left after rank ..."), or until all ranks of this node are gone (then the cause
// lies on another node, and it is reported FAULTED, NETWORK). What the agent ended itself is DONE.
//
// Who stands still. A rank that shows no progress for longer than its state allows is reported with
// where its device stands; nothing is ended for it.
//
// What arrives. A rank numbers what must arrive (RankMessage.seq) and keeps it until it is told
// that the coordinator has it; each number is forwarded once, whatever the rank sends again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/control_numbers.h"
#include "worker/node/gpus/slot_table.h"
#include "worker/node/loop/event_loop.h"
#include "worker/node/outbox/outbox.h"
#include "worker/node/ranks/allocation_store.h"
#include "worker/node/ranks/pending_words.h"
#include "worker/node/ranks/progress_watch.h"
#include "worker/node/ranks/rank_launcher.h"
#include "worker/node/ranks/rank_links.h"

namespace megatrain::v1 {
class AgentMessage;
class Assign;
class Command;
class HeldAllocation;
class RankHello;
class RankMessage;
class RankStall;
class RankStatus;
class StepRecord;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::node {

// From the one table of numbers (common/rpc/control_numbers.h); tests replace them.
struct RankLimits {
  // P1, P2: how long ranks may make no progress; how often that is checked.
  ProgressLimits progress;
  std::chrono::milliseconds progress_look = rpc::kProgressLook;
  // P3: ranks that were told to exit are killed after this.
  std::chrono::milliseconds abort_kill = rpc::kAbortKill;
  int fault_log_lines = 20;  // sent with the report of a faulted rank
};

// What ranks are told of the node.
struct NodeFacts {
  std::string data_root;
  std::string checkpoint_root;
  std::string log_root;
  std::string cache_root;
  std::string address;     // that ranks bind collectives to
  std::string rank_state;  // folder below which each allocation has its own
};

class Allocation {
 public:
  struct Deps {
    EventLoop* loop;
    const base::Clock* clock;
    RankLauncher* launcher;
    RankLinks* links;
    AllocationStore* store;
    const NodeFacts* node;
    const SlotTable* slots;
    RankLimits limits;
    std::function<LaunchId()> next_launch;
    // A report to the coordinator (job and epoch are filled in), and a step of this job.
    std::function<void(megatrain::v1::WorkerMessage, Outbox::Acked)> report;
    std::function<void(const megatrain::v1::StepRecord&, Outbox::Acked)> report_step;
    // Calls the second once the memory of these GPUs is free, or will not be.
    std::function<void(const std::vector<std::string>&, std::function<void()>)> await_free;
    std::function<void()> on_gone;     // posted once gone() is true
    std::function<void()> on_settled;  // posted once the coordinator knows that it is gone
  };

  Allocation(Deps deps, const megatrain::v1::AllocationRecord& record);
  ~Allocation();

  const std::string& job_uid() const;
  int64_t epoch() const;
  const megatrain::v1::Assign& assign() const;
  // Until gone(): while ranks run, and until their GPUs' memory is free.
  bool UsesSlot(int slot) const;
  bool UsesGpu(const std::string& uuid) const;
  bool HasLaunch(LaunchId launch) const;
  // Every rank has ended and was reported, and what they held of GPUs is free (P4).
  bool gone() const { return gone_; }
  // The job's resilience.on_agent_exit.
  bool stops_with_agent() const;

  // Starts every rank. One that cannot be started counts as a rank that failed.
  void StartRanks();
  // Takes over the ranks that an earlier agent has started; those that ended meanwhile are reported
  // as any others. With `damage` (why they cannot be gone on with) they are ended as failed.
  void AdoptRanks(const std::string& damage);

  // A rank calls. On error the link should be refused.
  Status Attach(LinkId link, const megatrain::v1::RankHello& hello);
  bool HasLink(LinkId link) const;
  // World rank of an attached link; -1: none.
  int RankOf(LinkId link) const;
  // A message of an attached link; not rendezvous, which is the agent's.
  void OnRankMessage(LinkId link, const megatrain::v1::RankMessage& message);
  void OnLinkClosed(LinkId link);
  void OnRankGone(LaunchId launch, const RankExit& exit);

  // To world rank 0, as soon as it is there; once more when it calls again before it has answered.
  // FailedPrecondition where rank 0 is not on this node or is gone.
  Status PassWord(const megatrain::v1::Command& command);
  // Ends all ranks: SIGTERM, SIGKILL after P5. `asked`: the coordinator wants it (ranks end DONE);
  // else they end FAULTED(INTERNAL) with this reason.
  void End(const std::string& reason, bool asked);

  void Describe(megatrain::v1::HeldAllocation* out) const;

 private:
  struct Rank;

  Rank* FindByLink(LinkId link) const;
  Rank* FindByLaunch(LaunchId launch) const;
  std::string FolderOf(const Rank& rank) const;
  megatrain::v1::AgentMessage AssignmentMessage() const;
  void Save();
  // The numbered messages: forwards each once, and passes on that it has arrived.
  void Forward(Rank* rank, const megatrain::v1::RankMessage& message);
  void ForwardBody(const megatrain::v1::RankMessage& message, Outbox::Acked acked);
  void OnAcknowledged(Rank* rank, int64_t seq);
  void TakeUnsent(Rank* rank, const std::string& bytes);
  void NoteFault(Rank* rank, const megatrain::v1::RankMessage& message);
  void OnFault(Rank* rank, const megatrain::v1::RankMessage& message);
  // Tells the others to exit and kills them after P3. Nothing where that is under way.
  void BeginAbort(const std::string& reason);
  void Classify(Rank* rank);
  void ReportGone(Rank* rank, bool at_fault, const std::string& text);
  void ReportState(const Rank& rank);
  void FillStatus(const Rank& rank, megatrain::v1::RankStatus* status) const;
  ProgressLimits LimitsOfJob() const;
  void LookAtProgress();
  // Reports the rank where it has begun, or ceased, to stand still.
  void LookAtProgressOf(Rank* rank);
  void FillStall(const ProgressWatch::Stall& stall, const std::string& mark,
                 megatrain::v1::RankStall* out) const;
  // For the message of its end: "; device last at step 12, ..."; empty where nothing is known.
  std::string WhereItStood(const Rank& rank) const;
  void BecomeGoneIfAllAre();
  void BecomeGone();

  Deps deps_;
  const std::unique_ptr<megatrain::v1::AllocationRecord> record_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  PendingWords words_;
  int culprit_ = -1;  // world rank; -1: none known
  bool aborting_ = false;
  bool ending_ = false;  // End was called
  bool end_asked_ = false;
  std::string end_reason_;
  bool gone_ = false;
  EventLoop::TimerId kill_timer_ = EventLoop::kNoTimer;
  EventLoop::TimerId look_timer_ = EventLoop::kNoTimer;
};

}  // namespace mt::node
