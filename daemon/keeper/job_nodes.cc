// JobKeeper and silence: a lost node keeps its ranks, its slots and its job until it is heard again
// or an operator declares it dead.
#include <algorithm>

#include "daemon/jobs/rank_states.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/stalls.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

bool JobKeeper::IsOpen(const v1::StoredAllocation& allocation) {
  const v1::StoredJob* stored = parts_.ledger->FindJob(allocation.job_uid());
  if (stored == nullptr || stored->job().epoch() != allocation.epoch() || stored->killing())
    return false;
  const v1::JobState state = stored->job().state();
  return IsActive(state) || state == v1::RELEASING || state == v1::STOPPING;
}

void JobKeeper::ShowReachability(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  std::string nodes;
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOfJob(job->uid())) {
    if (allocation->epoch() != job->epoch()) continue;
    if (allocation->state() != v1::UNREACHABLE && !silent_.contains(allocation->node())) continue;
    nodes += fmt::format("{}{}", nodes.empty() ? "" : ", ", allocation->node());
  }
  if (nodes.empty() || IsFinal(job->state())) {
    if (!ClearCondition(job, "NodeUnreachable")) return;
  } else {
    SetCondition(job, "NodeUnreachable", fmt::format("no heartbeat from node {}", nodes),
                 parts_.ledger->NowMicros());
  }
  parts_.ledger->MarkJob(stored, Change::kState);
}

void JobKeeper::NodeSilent(const std::string& node, bool silent) {
  if (silent) {
    silent_.insert(node);
  } else {
    silent_.erase(node);
  }
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOnNode(node)) {
    v1::StoredJob* stored = parts_.ledger->FindJob(allocation->job_uid());
    if (stored != nullptr && stored->job().epoch() == allocation->epoch())
      ShowReachability(*stored);
  }
}

void JobKeeper::EndRanksOf(v1::StoredJob& stored, const std::string& node, int state) {
  const auto to = static_cast<v1::RankState>(state);
  for (v1::RankStatus& rank : *stored.mutable_job()->mutable_ranks()) {
    if (rank.node() == node && RankMayMove(rank.state(), to)) rank.set_state(to);
  }
  ForgetStalls(parts_.ledger, stored, node);
}

void JobKeeper::ReactToLoss(v1::StoredJob& stored, const std::string& node) {
  if (stored.job().state() == v1::ADMITTED) {
    PlacementFailed(stored, fmt::format("node {} was lost", node));
    return;
  }
  EndRanksOf(stored, node, v1::UNKNOWN);
  ShowReachability(stored);
}

void JobKeeper::NodeLost(const std::string& node) {
  parts_.ledger->AddEvent({.type = "NodeLost", .message = "no heartbeat", .node = node});
  silent_.insert(node);
  for (v1::StoredAllocation* allocation : parts_.ledger->AllocationsOnNode(node)) {
    const JobEpoch key{allocation->job_uid(), allocation->epoch()};
    MoveAllocation(*allocation, v1::UNREACHABLE);
    v1::StoredJob* stored = parts_.ledger->FindJob(key.job_uid);
    if (stored != nullptr && stored->job().epoch() == key.epoch) ReactToLoss(*stored, node);
  }
}

void JobKeeper::AllocationHeld(v1::StoredJob& stored, v1::StoredAllocation& allocation) {
  AllocationAccepted(stored, allocation);
  if (allocation.state() == v1::UNREACHABLE) MoveAllocation(allocation, v1::ACTIVE);
  ShowReachability(stored);
}

void JobKeeper::ReactToDeath(v1::StoredJob& stored, const std::string& node, const Order& order) {
  const v1::Job& job = stored.job();
  EndRanksOf(stored, node, v1::FENCED);
  const std::string why = fmt::format("node {} was declared dead by {}{}{}", node, order.actor,
                                      order.reason.empty() ? "" : ": ", order.reason);
  if (IsActive(job.state())) {
    Fail(stored, {.cause = v1::HARDWARE, .rank = -1, .message = why, .last_log_lines = {}});
  } else if (job.state() == v1::STOPPING || job.state() == v1::RELEASING) {
    // The others would wait for its ranks. What was asked stands.
    if (stored.has_stop() && stored.stop().with_save()) {
      SetCondition(stored.mutable_job(), "CheckpointStale", why, parts_.ledger->NowMicros());
    }
    KillAll(stored, why);
    FinishIfGone(stored);
  }
  parts_.ledger->MarkJob(stored, Change::kState);
}

void JobKeeper::NodeDead(const std::string& node, const Order& order) {
  parts_.ledger->AddEvent({.type = "NodeDeclaredDead",
                           .message = "nothing runs there any more, says its operator",
                           .node = node,
                           .actor = order.actor,
                           .reason = order.reason});
  silent_.erase(node);
  std::vector<JobEpoch> ended;
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOnNode(node))
    ended.push_back({allocation->job_uid(), allocation->epoch()});
  for (const JobEpoch& key : ended) parts_.ledger->EraseAllocation({key.job_uid, key.epoch, node});
  for (const JobEpoch& key : ended) {
    v1::StoredJob* stored = parts_.ledger->FindJob(key.job_uid);
    if (stored == nullptr || stored->job().epoch() != key.epoch) continue;
    ReactToDeath(*stored, node, order);
    ShowReachability(*stored);
  }
}

}  // namespace mt::daemon
