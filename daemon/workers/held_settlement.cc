// One allocation at a time, by its state in the ledger.
#include "daemon/workers/held_settlement.h"

#include <algorithm>
#include <memory>

#include "common/base/log.h"
#include "common/control/epoch.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/allocations.h"
#include "daemon/keeper/closed.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/restore_gate.h"
#include "daemon/workers/orphans.h"
#include "daemon/workers/reports.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

void HeldSettlement::NoteEnds(v1::StoredAllocation& allocation, const v1::HeldAllocation& held) {
  allocation.clear_ended();
  for (const int rank : allocation.ranks()) {
    const auto status = std::ranges::find(held.ranks(), rank, &v1::RankStatus::rank);
    allocation.add_ended(status != held.ranks().end() && status->exited());
  }
  parts_.ledger->MarkAllocation(allocation);
}

v1::StoredAllocation* HeldSettlement::TakeBack(const AllocationKey& key,
                                               const v1::HeldAllocation& held) {
  const v1::StoredJob* stored = parts_.ledger->FindJob(key.job_uid);
  if (stored == nullptr || stored->job().epoch() != key.epoch) return nullptr;
  const v1::Job& job = stored->job();
  const bool mine = std::ranges::all_of(held.ranks(), [&](const v1::RankStatus& rank) {
    return rank.rank() >= 0 && rank.rank() < job.ranks_size() &&
           job.ranks(rank.rank()).node() == key.node;
  });
  if (!mine || held.ranks().empty() || !(IsActive(job.state()) || IsEnding(job))) return nullptr;
  log::Warn("ranks that the ledger had lost are back",
            {{"job", job.name()}, {"epoch", control::EpochText(key.epoch)}, {"node", key.node}});
  auto row = std::make_unique<v1::StoredAllocation>();
  row->set_job_uid(key.job_uid);
  row->set_epoch(key.epoch);
  row->set_node(key.node);
  row->set_state(v1::ACTIVE);
  for (const v1::RankStatus& rank : held.ranks()) {
    row->add_ranks(rank.rank());
    row->add_slots(rank.slot());
  }
  return parts_.ledger->AddAllocation(std::move(row));
}

void HeldSettlement::SettleHeld(WorkerSession& session, const v1::HeldAllocation& held) {
  const AllocationKey key{held.job_uid(), held.epoch(), session.node};
  v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
  const bool closed = IsClosed(parts_.ledger, key);
  if (allocation == nullptr && closed) {
    // Their slots are taken until they are gone.
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
  } else if (allocation == nullptr) {
    allocation = TakeBack(key, held);
  }
  if (allocation != nullptr && allocation->left_behind()) {
    allocation->clear_left_behind();
    parts_.ledger->MarkAllocation(*allocation);
  }
  if (closed) {
    NoteEnds(*allocation, held);
    MoveAllocation(parts_.ledger, *allocation, v1::FREEING);
    parts_.keeper->commands().SendKill({key.job_uid, key.epoch}, key.node, "this epoch is closed");
    return;
  }
  if (allocation == nullptr || !IsOpen(parts_.ledger, *allocation)) {
    parts_.orphans->Found(session, held);
    return;
  }
  NoteEnds(*allocation, held);
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
  for (const AllocationKey& key : MissingOf(hello.node(), held)) {
    v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
    v1::StoredJob* job = parts_.ledger->FindJob(key.job_uid);
    if (allocation == nullptr || allocation->left_behind()) continue;
    if (!former.accounted) {
      parts_.keeper->nodes().LeaveBehind(*allocation);
      continue;
    }
    const bool open = IsOpen(parts_.ledger, *allocation);
    if (!former.same_worker && IsBehind(key, held)) {
      parts_.keeper->teardown().AllocationForgotten(key);
    } else if (!former.same_worker && allocation->state() == v1::RESERVED && job != nullptr) {
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
    } else if (job != nullptr && allocation->state() != v1::ORPHANED) {
      // The agent had this allocation, so its end is among the reports that it sends again. The
      // kill of one that is being freed is ordered again.
      if (open) parts_.keeper->nodes().AllocationHeld(*job, *allocation);
      parts_.keeper->nodes().Remind(*job, *allocation);
    }
  }
}

std::vector<AllocationKey> HeldSettlement::MissingOf(const std::string& node,
                                                     const std::set<JobEpoch>& held) {
  std::vector<AllocationKey> missing;
  for (const v1::StoredAllocation* allocation : parts_.ledger->AllocationsOnNode(node)) {
    if (!held.contains({allocation->job_uid(), allocation->epoch()}))
      missing.push_back({allocation->job_uid(), allocation->epoch(), allocation->node()});
  }
  return missing;
}

bool HeldSettlement::IsBehind(const AllocationKey& key, const std::set<JobEpoch>& held) {
  // A declared restore is not settled: what the ledger says is of the past.
  if (!parts_.restore_gate->IsOpen()) return true;
  // A later epoch of the job was found, here or elsewhere.
  const auto later = held.upper_bound({key.job_uid, key.epoch});
  if (later != held.end() && later->job_uid == key.job_uid) return true;
  return std::ranges::any_of(parts_.ledger->AllocationsOfJob(key.job_uid),
                             [&](const v1::StoredAllocation* other) {
                               return other->state() == v1::ORPHANED && other->epoch() > key.epoch;
                             });
}

void HeldSettlement::SettleReport(WorkerSession& session, const v1::HeldReport& report) {
  std::set<JobEpoch> held;
  for (const v1::HeldAllocation& allocation : report.allocations()) {
    held.insert({allocation.job_uid(), allocation.epoch()});
    SettleHeld(session, allocation);
  }
  for (const AllocationKey& key : MissingOf(session.node, held)) {
    const v1::StoredAllocation* allocation = parts_.ledger->FindAllocation(key);
    // An order that is under way may be ahead of the report.
    if (allocation == nullptr || allocation->state() == v1::RESERVED ||
        session.orders.Concerns(key.job_uid, key.epoch)) {
      continue;
    }
    log::Warn(
        "ranks of the ledger are not on their node",
        {{"job_uid", key.job_uid}, {"epoch", control::EpochText(key.epoch)}, {"node", key.node}});
    if (IsBehind(key, held) || IsBeforeRestore(parts_.ledger, key.epoch)) {
      parts_.keeper->teardown().AllocationForgotten(key);
    } else {
      parts_.keeper->teardown().AllocationGone(key, "their agent does not hold them any more");
    }
  }
}

}  // namespace mt::daemon
