// Levels are chosen so that a query reads a bounded number of rows, whatever the length of the run.
#include "daemon/telemetry/history_view.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/control/numbers.h"

namespace mt::daemon {
namespace {

// Reading four times as many rows as points are requested costs little, and gives every answer
// between a quarter and all of its points.
constexpr int64_t kReadAhead = 4;

void AppendRange(const HistoryTable& from, const HistoryRange& range,
                 std::span<const std::string> names, HistoryTable* to) {
  for (size_t row = from.LowerBound(range.from_step); row < from.num_rows(); ++row) {
    // A bucket counts where any of its steps lies in the range.
    const int64_t begin =
        HistoryBucketOf(from.steps[row], from.level) * HistoryBucketSteps(from.level) + 1;
    if (begin > range.to_step || to->num_rows() >= range.limit) break;
    if (from.times_us[row] >= range.since_us) to->AppendRow(from, row);
  }
  if (names.empty()) return;
  std::erase_if(to->columns, [&](const HistoryColumn& column) {
    return std::ranges::find(names, column.name) == names.end();
  });
}

}  // namespace

int ChooseHistoryLevel(int64_t num_steps, int64_t points) {
  int level = 0;
  while (level + 1 < kHistoryLevels &&
         num_steps / HistoryBucketSteps(level) > kReadAhead * points) {
    ++level;
  }
  return level;
}

HistoryTable ReadHistoryLevel(const HistoryLevel& level, const HistoryRange& range,
                              std::span<const std::string> names, int64_t* bytes_read) {
  HistoryTable out(level.tail.level);
  for (const HistoryFrameRef& ref : level.frames.refs) {
    if (ref.header.last_time_us < range.since_us) continue;
    const int64_t first =
        ref.header.first_step - HistoryBucketSteps(static_cast<int>(ref.header.level));
    if (first >= range.to_step || out.num_rows() >= range.limit) break;
    const auto rows = ReadHistoryFrame(level.frames, ref, names);
    *bytes_read += static_cast<int64_t>(ref.header.body_bytes);
    if (!rows.ok()) {
      log::Warn("history: damaged frame skipped", {{"error", base::Message(rows.status())}});
      continue;
    }
    AppendRange(*rows, range, names, &out);
  }
  AppendRange(level.tail, range, names, &out);
  return out;
}

HistoryTable ThinHistory(HistoryTable rows, size_t points) {
  if (rows.num_rows() <= points) return rows;
  const size_t join = (rows.num_rows() + points - 1) / points;
  HistoryTable out(std::max(rows.level, 1));
  for (size_t row = 0; row < rows.num_rows(); ++row) {
    if (row % join == 0) {
      out.AppendRow(rows, row);
    } else {
      out.MergeIntoLast(rows, row);
    }
  }
  return out;
}

int64_t HistoryPointsThatFit(const HistoryTable& rows, int64_t points) {
  const bool each = rows.level == 0 && std::cmp_less_equal(rows.num_rows(), points) &&
                    std::cmp_less_equal(rows.num_rows(), HistoryPointLimit(rows.columns.size(), 0));
  return HistoryPointLimit(rows.columns.size(), each ? 0 : 1);
}

int64_t HistoryPointLimit(size_t num_columns, int level) {
  // A bucket's column has three arrays, and each point three numbers of its own: eight bytes per
  // double, at most ten per varint.
  constexpr int64_t kReserve = 1 << 19;  // for evaluations and names
  const auto bytes_per_point = static_cast<int64_t>(30 + num_columns * (level == 0 ? 8 : 24));
  return (control::kMaxMessageBytes - kReserve) / bytes_per_point;
}

}  // namespace mt::daemon
