// Level 0 takes the steps; a bucket that is finished feeds the next level. After Load and after a
// rollback the open buckets are rebuilt from the level below.
#include "daemon/telemetry/job_history.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

// Splits the first `num` rows of `rows` into tables of at most `per_frame` rows.
void Chunk(const HistoryTable& rows, size_t num, size_t per_frame, std::vector<HistoryTable>* out) {
  for (size_t first = 0; first < num; first += per_frame) {
    out->push_back(rows.Slice(first, std::min(per_frame, num - first)));
  }
}

}  // namespace

std::array<JobHistory::Rows, kHistoryLevels> JobHistory::MakeLevels() const {
  std::array<Rows, kHistoryLevels> levels;
  for (int level = 0; level < kHistoryLevels; ++level) {
    levels[static_cast<size_t>(level)] = {HistoryTable(level), HistoryTable(level)};
  }
  return levels;
}

Status JobHistory::Load(bool repair) {
  RETURN_IF_ERROR(file_.Load(repair));
  const HistoryFrameRef* last = file_.LastStepFrame();
  if (last != nullptr) {
    last_step_ = file_.LastStep(0);
    last_epoch_ = last->header.last_epoch;
  }
  // Drops buckets beyond the last step on disk: their steps are lost.
  file_.Cut(last_step_ + 1);
  epoch_base_ = FindEpochBase();
  Rebuild();
  return OkStatus();
}

JobHistory::Appended JobHistory::Admit(int64_t epoch, int64_t step) {
  const bool known = epoch < last_epoch_ || (epoch == last_epoch_ && step <= last_step_);
  if (known || step <= 0) return Appended::kKnown;
  if (step <= last_step_) Cut(step);
  if (levels_[0].rows.num_rows() >= kHistoryHeldRows) return Appended::kNoRoom;
  return Appended::kNew;
}

JobHistory::Appended JobHistory::Append(const megatrain::v1::StepRecord& step) {
  const Appended result = Admit(step.epoch(), step.step());
  if (result != Appended::kNew) return result;
  HistoryTable& rows = levels_[0].rows;
  rows.AppendStep(step);
  Take(rows, rows.num_rows() - 1);
  return result;
}

JobHistory::Appended JobHistory::AppendRow(const HistoryTable& from, size_t row) {
  const Appended result = Admit(from.epochs[row], from.steps[row]);
  if (result != Appended::kNew) return result;
  HistoryTable& rows = levels_[0].rows;
  rows.AppendRow(from, row);
  Take(rows, rows.num_rows() - 1);
  return result;
}

int64_t JobHistory::FindEpochBase() const {
  // One frame at most has steps of the newest epoch behind those of an earlier one.
  const std::vector<std::string> no_columns = {""};
  const HistoryFrames frames = file_.Frames(0, 0);
  for (const HistoryFrameRef& ref : frames.refs) {
    if (ref.header.last_epoch != last_epoch_) continue;
    const auto rows = ReadHistoryFrame(frames, ref, no_columns);
    if (!rows.ok()) return ref.header.first_step - 1;
    const auto first = std::ranges::find(rows->epochs, last_epoch_);
    if (first == rows->epochs.end()) continue;
    return rows->steps[static_cast<size_t>(first - rows->epochs.begin())] - 1;
  }
  return 0;
}

void JobHistory::Take(const HistoryTable& rows, size_t row) {
  if (rows.epochs[row] != last_epoch_) epoch_base_ = rows.steps[row] - 1;
  last_step_ = rows.steps[row];
  last_epoch_ = rows.epochs[row];
  Feed(1, rows, row, /*cascade=*/true);
}

void JobHistory::Feed(int level, const HistoryTable& rows, size_t row, bool cascade) {
  Rows& to = levels_[static_cast<size_t>(level)];
  const int64_t bucket = HistoryBucketOf(rows.steps[row], level);
  if (!to.open.empty() && HistoryBucketOf(to.open.steps[0], level) != bucket) {
    const HistoryTable finished = std::exchange(to.open, HistoryTable(level));
    to.rows.AppendRow(finished, 0);
    if (cascade && level + 1 < kHistoryLevels) Feed(level + 1, finished, 0, cascade);
  }
  if (to.open.empty()) {
    to.open.AppendRow(rows, row);
  } else {
    to.open.MergeIntoLast(rows, row);
  }
}

void JobHistory::KeepReplaced(int64_t step) {
  if (replaced_ == nullptr) return;
  const auto keep = [&](const HistoryTable& rows) {
    const size_t first = rows.LowerBound(step);
    if (first < rows.num_rows()) replaced_->Append(rows.Slice(first, rows.num_rows() - first));
  };
  // From the end on: what it has of an epoch goes on to the epoch's end.
  keep(levels_[0].rows);
  const HistoryFrames frames = file_.Frames(0, step - 1);
  for (auto ref = frames.refs.rbegin(); ref != frames.refs.rend(); ++ref) {
    const auto rows = ReadHistoryFrame(frames, *ref);
    if (rows.ok()) {
      keep(*rows);
    } else {
      log::Warn("history: damaged frame skipped", {{"error", base::Message(rows.status())}});
    }
  }
}

void JobHistory::Cut(int64_t step) {
  KeepReplaced(step);
  file_.Cut(step);
  for (Rows& level : levels_) {
    level.rows.Truncate(level.rows.LowerBound(step));
    level.open = HistoryTable(level.rows.level);
  }
  journaled_ = std::min(journaled_, levels_[0].rows.num_rows());
  Rebuild();
}

void JobHistory::Rebuild() {
  for (int level = 1; level < kHistoryLevels; ++level) {
    Rows& to = levels_[static_cast<size_t>(level)];
    const int64_t have = to.rows.empty() ? file_.LastStep(level) : to.rows.steps.back();
    const HistoryFrames below = file_.Frames(level - 1, have);
    for (const HistoryFrameRef& ref : below.refs) {
      const auto rows = ReadHistoryFrame(below, ref);
      if (!rows.ok()) {
        log::Warn("history: damaged frame skipped", {{"error", base::Message(rows.status())}});
        continue;
      }
      for (size_t row = rows->LowerBound(have + 1); row < rows->num_rows(); ++row) {
        Feed(level, *rows, row, /*cascade=*/false);
      }
    }
    const HistoryTable& rows = levels_[static_cast<size_t>(level - 1)].rows;
    for (size_t row = rows.LowerBound(have + 1); row < rows.num_rows(); ++row) {
      Feed(level, rows, row, /*cascade=*/false);
    }
  }
}

Status JobHistory::WriteFrames(bool all) {
  const auto whole = [](size_t rows, size_t per_frame) { return rows / per_frame * per_frame; };
  std::vector<HistoryTable> frames;
  std::array<size_t, kHistoryLevels> written{};
  for (size_t level = 0; level < kHistoryLevels; ++level) {
    const HistoryTable& rows = levels_[level].rows;
    const size_t per_frame = level == 0 ? kHistoryFrameRows : kHistoryBucketFrameRows;
    written[level] = level == 0 && all ? rows.num_rows() : whole(rows.num_rows(), per_frame);
    Chunk(rows, written[level], per_frame, &frames);
  }
  if (frames.empty()) return OkStatus();
  RETURN_IF_ERROR(file_.Append(frames));
  for (size_t level = 0; level < kHistoryLevels; ++level) {
    levels_[level].rows.EraseFront(written[level]);
  }
  journaled_ -= std::min(journaled_, written[0]);
  return OkStatus();
}

HistoryTable JobHistory::Unjournaled() const {
  const HistoryTable& rows = levels_[0].rows;
  return rows.Slice(journaled_, rows.num_rows() - journaled_);
}

HistoryLevel JobHistory::Level(int level, int64_t after_step) const {
  HistoryLevel out{.frames = file_.Frames(level, after_step), .tail = HistoryTable(level)};
  const HistoryTable& rows = levels_[static_cast<size_t>(level)].rows;
  const size_t first = rows.LowerBound(after_step + 1);
  out.tail = rows.Slice(first, rows.num_rows() - first);
  // The open buckets, the highest level first: each continues where the one above ends.
  for (int from = level; from >= 1; --from) {
    const HistoryTable& open = levels_[static_cast<size_t>(from)].open;
    if (open.empty() || open.steps[0] <= after_step) continue;
    const bool same = !out.tail.empty() && HistoryBucketOf(out.tail.steps.back(), level) ==
                                               HistoryBucketOf(open.steps[0], level);
    if (same) {
      out.tail.MergeIntoLast(open, 0);
    } else {
      out.tail.AppendRow(open, 0);
    }
  }
  return out;
}

int64_t JobHistory::first_step() const {
  const HistoryFrameRef* first = file_.FirstStepFrame();
  if (first != nullptr) return first->header.first_step;
  const HistoryTable& rows = levels_[0].rows;
  return rows.empty() ? 0 : rows.steps.front();
}

int64_t JobHistory::StepAt(int64_t time_us) const {
  for (const HistoryFrameRef& ref : file_.Frames(0, 0).refs) {
    if (ref.header.last_time_us >= time_us) return ref.header.first_step;
  }
  const HistoryTable& rows = levels_[0].rows;
  for (size_t row = 0; row < rows.num_rows(); ++row) {
    if (rows.times_us[row] >= time_us) return rows.steps[row];
  }
  return last_step_ + 1;
}

size_t JobHistory::MemoryBytes() const {
  size_t bytes = sizeof(*this) + file_.MemoryBytes();
  for (const Rows& level : levels_) bytes += level.rows.MemoryBytes() + level.open.MemoryBytes();
  return bytes;
}

}  // namespace mt::daemon
