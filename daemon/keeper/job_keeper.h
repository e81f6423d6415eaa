// Moves jobs through their states: applies the table, keeps what follows from each change (goal,
// cause, conditions, operations, allocations, words to ranks) together. Everyone else reports facts
// to it. In four files: job_keeper.cc (placement, ranks, verdicts), job_verbs.cc (what users ask
// for), job_nodes.cc (silence), job_teardown.cc (the way to the end of an epoch). Not thread-safe
// (the core's thread).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "daemon/jobs/job_states.h"
#include "daemon/jobs/verdict.h"
#include "daemon/keeper/operations.h"
#include "daemon/keeper/words.h"
#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
enum AllocationState : int;
class CommandDone;
class TrainingEnded;
}  // namespace megatrain::v1

namespace mt::daemon {

class WorkerHub;

class JobKeeper {
 public:
  struct Parts {
    Ledger* ledger;
    WorkerHub* hub;
    KeyValues* rendezvous;
    const base::Clock* clock;
  };
  explicit JobKeeper(const Parts& parts)
      : parts_(parts), book_(parts.ledger), words_(parts.ledger, parts.hub) {}

  // After a restart: deadlines of stops start anew, those of jobs go on.
  void Recover();
  // Deadlines: placement answers (P6), stop grace (P5), ranks that should be gone (P3), jobs.
  void Tick();

  // --- Facts. Each may end with the job in another state.
  void Placed(v1::StoredJob& job);
  void AllocationAccepted(v1::StoredJob& job, v1::StoredAllocation& allocation);
  void AllocationRefused(v1::StoredJob& job, const AllocationKey& key, std::string_view why);
  void RankFailed(v1::StoredJob& job, const std::string& node, const Verdict& verdict);
  // Rank states of the job changed: it may be RUNNING, or held, now. Steps prove that it trains
  // (`training`) even where reports are late.
  void RanksMoved(v1::StoredJob& job, bool training);
  // Rank 0 takes words from now on.
  void RankZeroReady(const v1::StoredJob& job) { words_.Send(job); }
  void TrainingEnded(v1::StoredJob& job, const v1::TrainingEnded& ended);
  // Nothing of the allocation is left on its node. `why` says how that came where nobody had asked
  // for it.
  void AllocationGone(const AllocationKey& key, std::string_view why);
  // An agent took a command, or refused it. False: no such command.
  bool CommandAnswered(const std::string& command_id, const std::string& node, bool accepted,
                       const std::string& message);
  // A word has acted on every rank, or failed. False: no such word was given.
  bool WordActed(v1::StoredJob& job, const v1::CommandDone& done);

  // --- Nodes.
  void NodeLost(const std::string& node);
  // No heartbeat for a while, or one again.
  void NodeSilent(const std::string& node, bool silent);
  // Its agent is back and holds this allocation of the job's open epoch.
  void AllocationHeld(v1::StoredJob& job, v1::StoredAllocation& allocation);
  // An operator's word that nothing runs there.
  void NodeDead(const std::string& node, const Order& order);
  // Whether the allocation is of an epoch whose ranks are to go on.
  bool IsOpen(const v1::StoredAllocation& allocation);

  // --- Orders.
  void Fail(v1::StoredJob& job, const Verdict& verdict);
  // (Re)sends what the job owes this node: words, or a kill.
  void RemindNode(v1::StoredJob& job, v1::StoredAllocation& allocation);
  void SendKill(const JobEpoch& job, const std::string& node, std::string_view reason) {
    words_.SendKill(job, node, reason);
  }
  bool MoveAllocation(v1::StoredAllocation& allocation, v1::AllocationState to);

  // --- What users ask for. FailedPrecondition, with the state and the verbs that it allows, where
  // the table has no such way.
  using Operated = StatusOr<const v1::Operation*>;
  Operated Hold(v1::StoredJob& job, const Order& order);
  Operated Release(v1::StoredJob& job, const Order& order);
  Operated Resume(v1::StoredJob& job, const Order& order);
  Operated Checkpoint(v1::StoredJob& job, const Order& order);
  Operated Cancel(v1::StoredJob& job, bool with_save, const Order& order);
  Operated Kill(v1::StoredJob& job, const Order& order);
  Operated Delete(v1::StoredJob& job, const Order& order);
  // The job's spec was changed; the ranks are told where they run.
  void SpecChanged(v1::StoredJob& job, const Order& order);

  // Before this time a job whose placement failed is not placed again.
  base::MonotonicTime RetryAt(const std::string& uid) const;
  int64_t num_refused() const { return machine_.num_refused(); }

 private:
  // What need not survive a restart.
  struct Runtime {
    base::MonotonicTime born{};                // submission, on the monotonic clock
    base::MonotonicTime placement_deadline{};  // ADMITTED
    base::MonotonicTime stop_deadline{};  // STOPPING, RELEASING without a kill: then one is sent
    base::MonotonicTime kill_again{};     // with a kill
    base::MonotonicTime retry_at{};
    std::set<std::string> kill_acked;  // nodes: what they report from now on is the kill's doing
  };
  // Why a job moves; for its message and the event.
  struct Why {
    std::string text;
    Order order = {};
    std::string operation = {};
    v1::Cause cause = {};
    int64_t step = 0;
    int64_t word_step = 0;
  };

  Runtime& RuntimeOf(const v1::Job& job);
  bool Apply(v1::StoredJob& job, JobEvent event, const Why& why);
  void SetGoal(v1::StoredJob& job, int goal, const Why& why);
  void PlacementFailed(v1::StoredJob& job, std::string_view why);
  void SetVerdict(v1::StoredJob& job, const Verdict& verdict);
  void MoveToHeld(v1::StoredJob& job);
  void StartedTraining(v1::StoredJob& job);

  // The end of an epoch.
  struct Ending {
    bool with_save;
    bool takes_words;  // of the state before: else there is nothing to save, and nobody to be told
    Order order;
    std::string why;
  };
  void EndRanks(v1::StoredJob& job, const Ending& ending);
  void KillAll(v1::StoredJob& job, std::string_view reason);
  void FinishIfGone(v1::StoredJob& job);
  void CloseEpoch(v1::StoredJob& job);
  void Finished(v1::StoredJob& job);
  void DeadlineOver(v1::StoredJob& job);
  void EndRanksOf(v1::StoredJob& job, const std::string& node, int state);

  // Ends the operations that the job's state fulfils.
  void SettleOperations(v1::StoredJob& job);
  Status CheckVerb(const v1::StoredJob& job, JobEvent event, std::string_view verb) const;
  Status WrongState(const v1::StoredJob& job, std::string_view verb, std::string_view why) const;
  void GiveHold(v1::StoredJob& job, const v1::Operation& operation, const Order& order);
  void WordRefused(v1::StoredJob& job, const v1::GivenWord& word, const Status& why);
  void SaveDone(v1::StoredJob& job, const v1::GivenWord& word, const v1::CommandDone& done);
  void StopDone(v1::StoredJob& job, const v1::CommandDone& done);
  void ReactToLoss(v1::StoredJob& job, const std::string& node);
  void ReactToDeath(v1::StoredJob& job, const std::string& node, const Order& order);
  void ShowReachability(v1::StoredJob& job);

  Parts parts_;
  OperationBook book_;
  Words words_;
  JobStateMachine machine_;
  std::map<std::string, Runtime> runtime_;  // live jobs, by uid
  std::set<std::string> silent_;            // nodes without a heartbeat for a while
};

}  // namespace mt::daemon
