// The ranks of one job and epoch on this node: starts them, follows their states, reports how each
// ended, and ends the others when one fails. Loop thread only; no I/O but through its seams.
//
// Who is at fault. A rank that ends by a signal, or with an exit code or report of its own, is a
// culprit and reported FAULTED. A rank that ends with 75 (transient: it lost a peer) is a
// consequence as long as a culprit may still show up: its report waits until one does (then it is
// reported DONE, "left after rank ..."), or until all ranks of this node are gone (then the cause
// lies on another node, and it is reported FAULTED, NETWORK). What the agent ended itself is DONE.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/limits.h"
#include "worker/agent/rank_launcher.h"
#include "worker/agent/rank_links.h"

namespace megatrain::v1 {
class Assign;
class Command;
class HeldAllocation;
class RankMessage;
class RankHello;
class RankStatus;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::agent {

// What ranks are told of the node.
struct NodeFacts {
  std::string data_root;
  std::string checkpoint_root;
  std::string log_root;
  std::string cache_root;
  std::string address;     // that ranks bind collectives to
  std::string rank_state;  // folder below which each rank has its own
};

class Allocation {
 public:
  struct Deps {
    EventLoop* loop;
    RankLauncher* launcher;
    RankLinks* links;
    const NodeFacts* node;
    Limits limits;
    std::function<LaunchId()> next_launch;
    // A report to the coordinator (job and epoch are filled in).
    std::function<void(megatrain::v1::WorkerMessage)> report;
    std::function<void()> on_gone;  // posted once gone() is true
  };

  Allocation(Deps deps, const megatrain::v1::Assign& assign);
  ~Allocation();

  const std::string& job_uid() const;
  int64_t epoch() const;
  bool UsesSlot(int slot) const;
  bool HasLaunch(LaunchId launch) const;
  // Every rank has ended and was reported.
  bool gone() const { return gone_; }

  // Starts every rank. One that cannot be started counts as a rank that failed.
  void StartRanks();

  // A rank calls. On error the link should be refused.
  Status Attach(LinkId link, const megatrain::v1::RankHello& hello);
  bool HasLink(LinkId link) const;
  // A message of an attached link: state, beat, job_report, fault, command_done. Steps and
  // rendezvous are the agent's.
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
  struct Word;

  std::string LogFile(int rank) const;
  Rank* FindByLink(LinkId link);
  Rank* FindByLaunch(LaunchId launch);
  void SendWords(const Rank& rank);
  void OnFault(Rank* rank, const megatrain::v1::RankMessage& message);
  // Tells the others to exit and kills them after P3. Nothing where that is under way.
  void BeginAbort(const std::string& reason);
  void Classify(Rank* rank);
  void ReportGone(Rank* rank, bool at_fault, const std::string& text);
  void ReportState(const Rank& rank);
  void FillStatus(const Rank& rank, megatrain::v1::RankStatus* status) const;
  void BecomeGoneIfAllAre();

  Deps deps_;
  std::unique_ptr<megatrain::v1::Assign> assign_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<Word>> words_;  // not yet acted upon
  int culprit_ = -1;                          // world rank; -1: none known
  bool aborting_ = false;
  bool ending_ = false;  // End was called
  bool end_asked_ = false;
  std::string end_reason_;
  bool gone_ = false;
  EventLoop::TimerId kill_timer_ = EventLoop::kNoTimer;
};

}  // namespace mt::agent
