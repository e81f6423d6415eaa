// The history of one job: its file, the rows that are in no frame yet, and the pyramid of levels
// above the steps. A bucket is finished when a step beyond it arrives; it then feeds the next
// level. After a rollback (a later epoch starts at a step that exists) the later epoch's steps
// replace the earlier ones. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "daemon/telemetry/history_file.h"
#include "daemon/telemetry/history_replaced.h"
#include "daemon/telemetry/history_table.h"

namespace mt::daemon {

// Most rows kept in memory while the disk refuses them.
inline constexpr size_t kHistoryHeldRows = 65'536;

// A reader's snapshot of one level: frames on disk, followed by rows in memory.
struct HistoryLevel {
  HistoryFrames frames;
  HistoryTable tail;
};

// The rows of one job on all levels.
class JobHistory {
 public:
  // Outcome of an append: kNew: taken. kKnown: nothing to do. kNoRoom: refused, kHistoryHeldRows
  // wait for the disk.
  enum class Appended { kNew, kKnown, kNoRoom };

  // `replaced` takes the steps that a later epoch replaces, and outlives it; nullptr: they go.
  explicit JobHistory(std::string path, HistoryReplaced* replaced = nullptr)
      : file_(std::move(path)), replaced_(replaced) {}
  // Reads the file's index and rebuilds the open buckets. `repair`, only for the process that
  // writes, cuts off an interrupted write. Blocks.
  Status Load(bool repair);

  // Adds a step. kKnown: it exists already, or belongs to an epoch before the newest one.
  Appended Append(const megatrain::v1::StepRecord& step);
  // Adds row `row` of `rows` (level 0), as the journal returns it.
  Appended AppendRow(const HistoryTable& rows, size_t row);

  // --- Writing.
  bool has_full_frame() const { return levels_[0].rows.num_rows() >= kHistoryFrameRows; }
  // Moves full frames, or with `all` every step, to the file. After an error nothing has moved.
  // Blocks.
  Status WriteFrames(bool all);
  // The steps that are in neither the file nor the journal; MarkJournaled says that the journal has
  // them.
  HistoryTable Unjournaled() const;
  bool has_unjournaled() const { return journaled_ < levels_[0].rows.num_rows(); }
  void MarkJournaled() { journaled_ = levels_[0].rows.num_rows(); }
  // The steps that are not in the file.
  const HistoryTable& Held() const { return levels_[0].rows; }

  // --- Reading.
  // A snapshot of the level's rows after `after_step`.
  HistoryLevel Level(int level, int64_t after_step) const;
  // 0: the history is empty.
  int64_t first_step() const;
  int64_t last_step() const { return last_step_; }
  // The newest epoch that has steps, and the last step before its first one.
  int64_t last_epoch() const { return last_epoch_; }
  int64_t epoch_base() const { return epoch_base_; }
  // The first step that was reported at or after this Unix time; last_step() + 1 where there is
  // none. Rounded down to the beginning of its frame on disk.
  int64_t StepAt(int64_t time_us) const;
  size_t MemoryBytes() const;

 private:
  struct Rows {
    HistoryTable rows;  // finished buckets or steps that are in no frame
    HistoryTable open;  // the open bucket: no row or one
  };
  void Take(const HistoryTable& rows, size_t row);
  void Feed(int level, const HistoryTable& rows, size_t row, bool cascade);
  Appended Admit(int64_t epoch, int64_t step);
  int64_t FindEpochBase() const;
  void Cut(int64_t step);
  void KeepReplaced(int64_t step);
  void Rebuild();
  std::array<Rows, kHistoryLevels> MakeLevels() const;

  HistoryFile file_;
  HistoryReplaced* const replaced_;
  std::array<Rows, kHistoryLevels> levels_ = MakeLevels();
  size_t journaled_ = 0;  // number of levels_[0].rows that the journal has
  int64_t last_step_ = 0;
  int64_t last_epoch_ = 0;
  int64_t epoch_base_ = 0;
};

}  // namespace mt::daemon
