// Moves of allocations and of the ranks on one node, by the tables of daemon/jobs/rank_states.h.
// Not thread-safe (the core's thread).
#pragma once

#include <string>

#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
enum AllocationState : int;
enum RankState : int;
}  // namespace megatrain::v1

namespace mt::daemon {

// True where the allocation is in that state now; a move that the table does not list is logged.
bool MoveAllocation(Ledger* ledger, v1::StoredAllocation& allocation, v1::AllocationState to);
// Whether the allocation is of an epoch whose ranks are to go on.
bool IsOpen(Ledger* ledger, const v1::StoredAllocation& allocation);
// Moves those ranks of the job on the node that the table lets go there; what was said of their
// progress is no news any more.
void MoveRanksOf(Ledger* ledger, v1::StoredJob& job, const std::string& node, v1::RankState to);

}  // namespace mt::daemon
