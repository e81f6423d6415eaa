// Which epochs are closed: the only ones whose ranks this coordinator kills. Everything else that
// it does not know stays as it is (daemon/workers/orphans.h). Not thread-safe (the core's thread).
#pragma once

#include "daemon/ledger/ledger.h"

namespace mt::daemon {

// True where this store says that the ranks of that epoch on that node are to end: its job is final
// or deleted and no later epoch than its last is meant, the job has a higher epoch, the job has
// closed this one (a placement that failed, a release), or their kill was ordered. False where the
// store knows nothing of the job or of so high an epoch: another store may have given it.
bool IsClosed(Ledger* ledger, const AllocationKey& key);

// Whether the epoch was given before the newest declared restore: what its ranks have reported may
// have been acknowledged by a store that is lost.
bool IsBeforeRestore(Ledger* ledger, int64_t epoch);

}  // namespace mt::daemon
