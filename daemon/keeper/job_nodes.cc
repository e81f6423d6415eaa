// What silence, loss, return and death of a node mean for each job that has ranks there.
#include "daemon/keeper/job_nodes.h"

#include <algorithm>
#include <vector>

#include "daemon/keeper/allocations.h"
#include "daemon/keeper/conditions.h"
#include "daemon/keeper/job_placement.h"
#include "daemon/keeper/job_teardown.h"
#include "daemon/keeper/pending_commands.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

void JobNodes::ShowReachability(v1::StoredJob& stored) {
  v1::Job* job = stored.mutable_job();
  std::string nodes;
  for (const v1::StoredAllocation* allocation : tools_.ledger->AllocationsOfJob(job->uid())) {
    if (allocation->epoch() != job->epoch()) continue;
    if (allocation->state() != v1::UNREACHABLE && !silent_.contains(allocation->node())) continue;
    nodes += fmt::format("{}{}", nodes.empty() ? "" : ", ", allocation->node());
  }
  if (nodes.empty() || IsFinal(job->state())) {
    if (!ClearCondition(job, "NodeUnreachable")) return;
  } else {
    SetCondition(job, "NodeUnreachable", fmt::format("no heartbeat from node {}", nodes),
                 tools_.ledger->NowMicros());
  }
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobNodes::Silent(const std::string& node, bool silent) {
  if (silent) {
    silent_.insert(node);
  } else {
    silent_.erase(node);
  }
  for (const v1::StoredAllocation* allocation : tools_.ledger->AllocationsOnNode(node)) {
    v1::StoredJob* stored = tools_.ledger->FindJob(allocation->job_uid());
    if (stored != nullptr && stored->job().epoch() == allocation->epoch())
      ShowReachability(*stored);
  }
}

void JobNodes::Remind(v1::StoredJob& stored, v1::StoredAllocation& allocation) {
  const v1::Job& job = stored.job();
  if (allocation.state() == v1::FREEING) {
    tools_.commands->SendKill({allocation.job_uid(), allocation.epoch()}, allocation.node(),
                              "stopping");
    return;
  }
  if (!job.ranks().empty() && job.ranks(0).node() == allocation.node())
    tools_.commands->Send(stored);
}

void JobNodes::ReactToLoss(v1::StoredJob& stored, const std::string& node) {
  if (stored.job().state() == v1::ADMITTED) {
    placement_->Failed(stored, fmt::format("node {} was lost", node));
    return;
  }
  const bool ends = stored.job().state() == v1::RECOVERING;
  MoveRanksOf(tools_.ledger, stored, node, ends ? v1::FENCED : v1::UNKNOWN);
  ShowReachability(stored);
  if (ends) teardown_->FinishIfGone(stored);
}

void JobNodes::Lost(const std::string& node, bool placements) {
  tools_.ledger->AddEvent({.type = "NodeLost", .message = "no heartbeat", .node = node});
  silent_.insert(node);
  for (v1::StoredAllocation* allocation : tools_.ledger->AllocationsOnNode(node)) {
    // Orphans stay orphans, and the kill of one that was ordered stays ordered.
    if (allocation->state() == v1::ORPHANED ||
        tools_.ledger->FindJob(allocation->job_uid()) == nullptr)
      continue;
    if (!placements && allocation->state() == v1::RESERVED) continue;
    Unreachable(*allocation);
  }
}

void JobNodes::Unreachable(v1::StoredAllocation& allocation) {
  const JobEpoch key{allocation.job_uid(), allocation.epoch()};
  const std::string node = allocation.node();
  MoveAllocation(tools_.ledger, allocation, v1::UNREACHABLE);
  v1::StoredJob* stored = tools_.ledger->FindJob(key.job_uid);
  if (stored != nullptr && stored->job().epoch() == key.epoch) ReactToLoss(*stored, node);
}

void JobNodes::LeaveBehind(v1::StoredAllocation& allocation) {
  if (!HasLeftBehind(allocation.node())) {
    tools_.ledger->AddEvent(
        {.type = "NodeChangedMachine",
         .message =
             fmt::format("another machine has this name; what the one before ran stays as it "
                         "is until that one is heard, or mtctl node declare-dead {}",
                         allocation.node()),
         .node = allocation.node()});
  }
  allocation.set_left_behind(true);
  tools_.ledger->MarkAllocation(allocation);
  Unreachable(allocation);
}

bool JobNodes::HasLeftBehind(const std::string& node) {
  return std::ranges::any_of(tools_.ledger->AllocationsOnNode(node),
                             [](const v1::StoredAllocation* one) { return one->left_behind(); });
}

void JobNodes::AllocationHeld(v1::StoredJob& stored, v1::StoredAllocation& allocation) {
  placement_->AllocationAccepted(stored, allocation);
  if (allocation.state() == v1::UNREACHABLE) MoveAllocation(tools_.ledger, allocation, v1::ACTIVE);
  ShowReachability(stored);
}

void JobNodes::ReactToDeath(v1::StoredJob& stored, const std::string& node, const Order& order) {
  const v1::Job& job = stored.job();
  MoveRanksOf(tools_.ledger, stored, node, v1::FENCED);
  const std::string why = fmt::format("node {} was declared dead by {}{}{}", node, order.actor,
                                      order.reason.empty() ? "" : ": ", order.reason);
  if (job.state() == v1::ADMITTED) {
    placement_->Failed(stored, why);
  } else if (IsActive(job.state())) {
    if (job.state() != v1::RECOVERING) {
      tools_.raiser->Fail(
          stored, {.cause = v1::HARDWARE, .rank = -1, .message = why, .last_log_lines = {}});
    }
    if (job.state() == v1::RECOVERING) {
      // The operator's word is proof that they have ended: other lost nodes need not be waited for.
      MoveRanksOf(tools_.ledger, stored, node, v1::DONE);
      teardown_->FinishIfGone(stored);
    }
  } else if (IsEnding(job)) {
    // The others would wait for its ranks. What was asked stands.
    if (stored.has_stop() && stored.stop().with_save()) {
      SetCondition(stored.mutable_job(), "CheckpointStale", why, tools_.ledger->NowMicros());
    }
    teardown_->KillRanks(stored, why);
  }
  tools_.ledger->MarkJob(stored, Change::kState);
}

void JobNodes::Dead(const std::string& node, const Order& order, Which which) {
  tools_.ledger->AddEvent({.type = "NodeDeclaredDead",
                           .message = "nothing runs there any more, says its operator",
                           .node = node,
                           .actor = order.actor,
                           .reason = order.reason});
  if (which == Which::kAll) silent_.erase(node);
  std::vector<JobEpoch> ended;
  for (const v1::StoredAllocation* allocation : tools_.ledger->AllocationsOnNode(node)) {
    if (which == Which::kAll || allocation->left_behind())
      ended.push_back({allocation->job_uid(), allocation->epoch()});
  }
  for (const JobEpoch& key : ended) tools_.ledger->EraseAllocation({key.job_uid, key.epoch, node});
  for (const JobEpoch& key : ended) {
    v1::StoredJob* stored = tools_.ledger->FindJob(key.job_uid);
    if (stored == nullptr || stored->job().epoch() != key.epoch) continue;
    ReactToDeath(*stored, node, order);
    ShowReachability(*stored);
  }
}

}  // namespace mt::daemon
