// Each level below adds at most 15 rows at each end.
#include "daemon/telemetry/history_piece.h"

#include <algorithm>

namespace mt::daemon {
namespace {

void Plan(const JobHistory& job, int level, const HistoryRange& range,
          std::vector<HistoryPiece>* out) {
  const int64_t from = range.from_step;
  const int64_t to = range.to_step;
  if (from > to) return;
  if (level <= 0) {
    out->push_back({.source = job.Level(0, from - 1), .range = range});
    return;
  }
  const int64_t size = HistoryBucketSteps(level);
  // Whole buckets; what begins with the history, or ends with it, is whole, too.
  int64_t first = (from - 1 + size - 1) / size * size + 1;
  int64_t last = to / size * size;
  if (from <= job.first_step()) first = from;
  if (to >= job.last_step()) last = to;
  if (first > last) return Plan(job, level - 1, range, out);
  HistoryRange part = range;
  if (from < first) {
    part.to_step = first - 1;
    Plan(job, level - 1, part, out);
  }
  part.from_step = first;
  part.to_step = last;
  out->push_back({.source = job.Level(level, first - 1), .range = part});
  if (last < to) {
    part.from_step = last + 1;
    part.to_step = to;
    Plan(job, level - 1, part, out);
  }
}

// Rows of a lower level become parts of one bucket.
void Append(const HistoryTable& rows, HistoryTable* out) {
  bool joins = false;  // the bucket before is of these rows
  for (size_t row = 0; row < rows.num_rows(); ++row) {
    const bool same = joins && HistoryBucketOf(out->steps.back(), out->level) ==
                                   HistoryBucketOf(rows.steps[row], out->level);
    if (same) {
      out->MergeIntoLast(rows, row);
    } else {
      out->AppendRow(rows, row);
    }
    joins = rows.level < out->level;
  }
}

}  // namespace

std::vector<HistoryPiece> PlanPieces(const JobHistory& job, int level, const HistoryRange& range) {
  HistoryRange held = range;
  held.from_step = std::max({range.from_step, job.first_step(), int64_t{1}});
  held.to_step = std::min(range.to_step, job.last_step());
  std::vector<HistoryPiece> out;
  Plan(job, level, held, &out);
  return out;
}

HistoryTable ReadPieces(std::span<const HistoryPiece> pieces, int level,
                        std::span<const std::string> names, int64_t* bytes_read) {
  HistoryTable out(level);
  for (const HistoryPiece& piece : pieces) {
    HistoryRange range = piece.range;
    if (range.limit <= out.num_rows()) break;
    range.limit -= level == 0 ? out.num_rows() : 0;
    Append(ReadHistoryLevel(piece.source, range, names, bytes_read), &out);
  }
  return out;
}

}  // namespace mt::daemon
