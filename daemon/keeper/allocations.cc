// Moves by the tables, written back to the ledger.
#include "daemon/keeper/allocations.h"

#include "common/base/log.h"
#include "daemon/jobs/job_states.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/keeper/stalls.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {

bool MoveAllocation(Ledger* ledger, v1::StoredAllocation& allocation, v1::AllocationState to) {
  if (allocation.state() == to) return true;
  if (!AllocationMayMove(allocation.state(), to)) {
    log::Warn("allocation move refused", {{"job_uid", allocation.job_uid()},
                                          {"node", allocation.node()},
                                          {"from", v1::AllocationState_Name(allocation.state())},
                                          {"to", v1::AllocationState_Name(to)}});
    return false;
  }
  allocation.set_state(to);
  ledger->MarkAllocation(allocation);
  return true;
}

bool IsOpen(Ledger* ledger, const v1::StoredAllocation& allocation) {
  if (allocation.state() == v1::ORPHANED) return false;
  const v1::StoredJob* stored = ledger->FindJob(allocation.job_uid());
  if (stored == nullptr || stored->job().epoch() != allocation.epoch() || stored->killing() ||
      stored->closed_epoch() == allocation.epoch()) {
    return false;
  }
  const v1::JobState state = stored->job().state();
  return IsActive(state) || state == v1::RELEASING || state == v1::STOPPING;
}

void MoveRanksOf(Ledger* ledger, v1::StoredJob& stored, const std::string& node, v1::RankState to) {
  for (v1::RankStatus& rank : *stored.mutable_job()->mutable_ranks()) {
    if (rank.node() == node && RankMayMove(rank.state(), to)) rank.set_state(to);
  }
  ForgetStalls(ledger, stored, node);
}

}  // namespace mt::daemon
