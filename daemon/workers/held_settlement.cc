// One allocation at a time, by its state in the ledger.
#include "daemon/workers/held_settlement.h"

#include <memory>
#include <set>
#include <vector>

#include "daemon/keeper/allocations.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/restore_gate.h"
#include "daemon/workers/reports.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

void HeldSettlement::SettleHeld(WorkerSession& session, const v1::HeldAllocation& held) {
  const AllocationKey key{held.job_uid(), held.epoch(), session.node};
  v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
  if (allocation == nullptr) {
    // These are ranks that this coordinator closed, or never knew: their slots are taken until they
    // are gone.
    auto stray = std::make_unique<v1::StoredAllocation>();
    stray->set_job_uid(key.job_uid);
    stray->set_epoch(key.epoch);
    stray->set_node(key.node);
    stray->set_state(v1::FREEING);
    for (const v1::RankStatus& rank : held.ranks()) {
      stray->add_ranks(rank.rank());
      stray->add_slots(rank.slot());
    }
    allocation = parts_.ledger->AddAllocation(std::move(stray));
  }
  if (allocation->left_behind()) {
    allocation->clear_left_behind();
    parts_.ledger->MarkAllocation(*allocation);
  }
  if (allocation->state() == v1::FREEING || !IsOpen(parts_.ledger, *allocation)) {
    MoveAllocation(parts_.ledger, *allocation, v1::FREEING);
    parts_.keeper->commands().SendKill({key.job_uid, key.epoch}, key.node, "this epoch is closed");
    return;
  }
  v1::StoredJob& job = *parts_.ledger->FindJob(held.job_uid());
  allocation->set_worker_uid(parts_.ledger->FindWorker(session.node)->node().uid());
  parts_.ledger->MarkAllocation(*allocation);
  parts_.keeper->nodes().AllocationHeld(job, *allocation);
  for (const v1::RankStatus& rank : held.ranks()) {
    // A rank's end comes as a report of its own, with cause and log lines.
    if (!rank.exited() && rank.state() != v1::FAULTED)
      parts_.reports->TakeRankStatus(job, session.node, rank);
  }
  parts_.keeper->placement().RanksMoved(job, /*training=*/false);
  parts_.keeper->nodes().Remind(job, *allocation);
}

void HeldSettlement::SettleMissing(const v1::Register& hello, const Former& former) {
  std::set<JobEpoch> held;
  for (const v1::HeldAllocation& allocation : hello.allocations())
    held.insert({allocation.job_uid(), allocation.epoch()});
  std::vector<AllocationKey> missing;
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOnNode(hello.node())) {
    if (!held.contains({allocation->job_uid(), allocation->epoch()})) {
      missing.push_back({allocation->job_uid(), allocation->epoch(), allocation->node()});
    }
  }
  for (const AllocationKey& key : missing) {
    v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
    v1::StoredJob* job = parts_.ledger->FindJob(key.job_uid);
    if (allocation == nullptr || allocation->left_behind()) continue;
    if (!former.accounted) {
      parts_.keeper->nodes().LeaveBehind(*allocation);
      continue;
    }
    const bool open = IsOpen(parts_.ledger, *allocation);
    if (!former.same_worker && allocation->state() == v1::RESERVED && job != nullptr) {
      parts_.keeper->placement().AllocationRefused(*job, key, "its agent was restarted");
    } else if (!former.same_worker) {
      parts_.keeper->teardown().AllocationGone(
          key, former.same_boot ? "its agent was restarted and did not find them"
                                : "the node was booted again");
    } else if (allocation->state() == v1::RESERVED && job != nullptr &&
               !parts_.restore_gate->IsOpen()) {
      // The placement may have come to its end since the backup, and another one after it.
      parts_.keeper->placement().AllocationRefused(*job, key, "the store was restored");
    } else if (allocation->state() == v1::RESERVED && job != nullptr) {
      parts_.hub->FindByNode(key.node)->unanswered.insert({key.job_uid, key.epoch});
    } else if (allocation->state() == v1::UNREACHABLE && !open) {
      parts_.keeper->teardown().AllocationGone(key, "the node is back without them");
    } else if (job != nullptr) {
      // The agent had this allocation, so its end is among the reports that it sends again. The
      // kill of one that is being freed is ordered again.
      if (open) parts_.keeper->nodes().AllocationHeld(*job, *allocation);
      parts_.keeper->nodes().Remind(*job, *allocation);
    }
  }
}

}  // namespace mt::daemon
