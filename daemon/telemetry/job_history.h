// The history of one job: its file, the rows that are not in a frame yet, and the pyramid above
// them. A bucket of a level is finished when a step behind it comes; it is then fed to the next
// level. After a rollback (a later epoch begins at a step that is there) the later epoch's steps
// count. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "daemon/telemetry/history_file.h"
#include "daemon/telemetry/history_table.h"

namespace mt::daemon {

// Rows that are kept in memory at most while the disk refuses them.
inline constexpr size_t kHistoryHeldRows = 65'536;

// What a reader needs of one level: frames on disk, then rows in memory.
struct HistoryLevel {
  HistoryFrames frames;
  HistoryTable tail;
};

class JobHistory {
 public:
  enum class Appended { kNew, kKnown, kNoRoom };

  explicit JobHistory(std::string path) : file_(std::move(path)) {}
  // Reads the index and rebuilds the unfinished buckets. With `repair`, for the one that writes.
  Status Load(bool repair);

  // kKnown: this step of this epoch (or of an older one) is there, or was rolled back.
  Appended Append(const megatrain::v1::StepRecord& step);
  // Row `row` of `rows` (level 0), as a journal gives it back.
  Appended AppendRow(const HistoryTable& rows, size_t row);

  // --- To disk.
  bool has_full_frame() const { return levels_[0].rows.num_rows() >= kHistoryFrameRows; }
  // Moves full frames (`all`: every step) to the file. After an error nothing has moved.
  Status WriteFrames(bool all);
  // Steps that are neither in the file nor in the journal; and the note that they are now.
  HistoryTable Unjournaled() const;
  bool has_unjournaled() const { return journaled_ < levels_[0].rows.num_rows(); }
  void MarkJournaled() { journaled_ = levels_[0].rows.num_rows(); }
  // Steps that only the journal keeps.
  const HistoryTable& Held() const { return levels_[0].rows; }

  // --- Reading.
  // Rows of the level behind `after_step`.
  HistoryLevel Level(int level, int64_t after_step) const;
  int64_t first_step() const;
  int64_t last_step() const { return last_step_; }
  int64_t last_epoch() const { return last_epoch_; }
  // First step that was reported at or after this time; last_step() + 1 where there is none. As
  // exact as the frames' headers.
  int64_t StepAt(int64_t time_us) const;
  size_t MemoryBytes() const;

 private:
  struct Rows {
    HistoryTable rows;  // finished, not in a frame
    HistoryTable open;  // the unfinished bucket: none or one row
  };
  void Take(const HistoryTable& rows, size_t row);
  void Feed(int level, const HistoryTable& rows, size_t row, bool cascade);
  Appended Admit(int64_t epoch, int64_t step);
  void Cut(int64_t step);
  void Rebuild();
  std::array<Rows, kHistoryLevels> MakeLevels() const;

  HistoryFile file_;
  std::array<Rows, kHistoryLevels> levels_ = MakeLevels();
  size_t journaled_ = 0;  // of levels_[0].rows
  int64_t last_step_ = 0;
  int64_t last_epoch_ = 0;
};

}  // namespace mt::daemon
