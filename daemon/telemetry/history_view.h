// Reduces a range of a history to about the requested number of points: which level is read, and
// how many of its buckets form one point. Reads block; no shared state.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "daemon/telemetry/history_table.h"
#include "daemon/telemetry/job_history.h"

namespace mt::daemon {

// The finest level on which the range has at most four times as many buckets as points.
int ChooseHistoryLevel(int64_t num_steps, int64_t points);

// Rows to read.
struct HistoryRange {
  int64_t from_step;
  int64_t to_step;
  // Unix time; 0: not limited.
  int64_t since_us = 0;
  size_t limit = SIZE_MAX;  // at most so many rows, the oldest ones
  bool samples = false;     // of the evaluations there, which are read with it
  // Instead of the history's own steps those of this epoch that later ones have replaced, without
  // evaluations; 0: the history's own. Of History::Part alone.
  int64_t replaced_of = 0;
};
// Reads the level's rows in the range, with the named columns (empty: all). Damaged frames are
// logged and skipped. Adds the bytes read from the disk to *bytes_read.
HistoryTable ReadHistoryLevel(const HistoryLevel& level, const HistoryRange& range,
                              std::span<const std::string> names, int64_t* bytes_read);
// Merges neighbouring rows until at most `points` are left; the result is of level 1 or above if
// any were merged.
HistoryTable ThinHistory(HistoryTable rows, size_t points);
// Number of points of `level` with `num_columns` columns that fit into one message (A2): steps have
// one number per column, buckets three.
int64_t HistoryPointLimit(size_t num_columns, int level);
// How many points of these rows a message holds: of fewer than `points` steps each one by itself,
// which takes less room than a bucket of them.
int64_t HistoryPointsThatFit(const HistoryTable& rows, int64_t points);

}  // namespace mt::daemon
