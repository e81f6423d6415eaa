// Reads a range of steps of one job's history on any level, to the step: a bucket that lies across
// an end of the range is replaced by smaller ones, or by steps, within it. So parts of several
// histories can be put behind each other. Planned where the history may not change; read later.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/telemetry/history_table.h"
#include "daemon/telemetry/history_view.h"
#include "daemon/telemetry/job_history.h"

namespace mt::daemon {

// A snapshot of one level, and what is to be read of it.
struct HistoryPiece {
  HistoryLevel source;
  HistoryRange range;
};

// The pieces of the steps from `range.from_step` to `range.to_step`, in order: of `level` where its
// buckets lie within the range, of lower levels at its ends.
std::vector<HistoryPiece> PlanPieces(const JobHistory& job, int level, const HistoryRange& range);
// Reads them as a table of `level`. Blocks; adds the bytes read from the disk to *bytes_read.
HistoryTable ReadPieces(std::span<const HistoryPiece> pieces, int level,
                        std::span<const std::string> names, int64_t* bytes_read);

}  // namespace mt::daemon
