// How a range of a history becomes about as many points as were asked for: which level is read, and
// how many of its buckets make one point. Blocking reads; no shared state.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "daemon/telemetry/history_table.h"
#include "daemon/telemetry/job_history.h"

namespace mt::daemon {

// The finest level of which the range has at most four times as many buckets as points.
int ChooseHistoryLevel(int64_t num_steps, int64_t points);

struct HistoryRange {
  int64_t from_step;
  int64_t to_step;
  int64_t since_us = 0;
  size_t limit = SIZE_MAX;  // of rows, the oldest
};
// The level's rows of the range. Damaged frames are logged and left out. Adds to *bytes_read.
HistoryTable ReadHistoryLevel(const HistoryLevel& level, const HistoryRange& range,
                              std::span<const std::string> names, int64_t* bytes_read);
// Joins neighbours until at most `points` rows are left.
HistoryTable ThinHistory(HistoryTable rows, size_t points);
// Points that one answer may have, so that it fits into a message (A2).
int64_t HistoryPointLimit(size_t num_columns);

}  // namespace mt::daemon
