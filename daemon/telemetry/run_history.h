// The history of a run, out of those of its jobs: what QueryHistory answers. Thread-safe as the
// history is; blocks on the disk.
#pragma once

#include "daemon/telemetry/history.h"
#include "daemon/telemetry/run_parts.h"

namespace mt::daemon {

// As History::Query and History::Walk, over the parts of the run. A run that is all in one job's
// history is answered as that history is.
HistoryView QueryRun(const History& history, const RunSources& sources, const HistoryQuery& query);
HistoryView WalkRun(const History& history, const RunSources& sources, const HistoryWalk& walk);

}  // namespace mt::daemon
