// The jobs whose histories are a job's run. Not thread-safe (the core's thread).
#pragma once

#include "common/base/status.h"
#include "daemon/ledger/ledger.h"
#include "daemon/telemetry/run_parts.h"

namespace mt::daemon {

// `attempt` 0: the run as of the job. Where runs had no ids yet, jobs of the same namespace, name
// and checkpoint directory are attempts of one run, back to one that started cold. kNotFound
// (INVALID_REQUEST): the run has no such attempt.
StatusOr<RunSources> FindRunSources(Ledger* ledger, const v1::StoredJob& job, int attempt);

}  // namespace mt::daemon
