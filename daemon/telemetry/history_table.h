// Rows of a job's history held in columns: single steps (level 0) or buckets of 16^level steps with
// the smallest, largest and last value of each column. Not thread-safe; no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain::v1 {
class StepRecord;
}

namespace mt::daemon {

inline constexpr int kHistoryFanOut = 16;  // buckets of a level in one of the next
inline constexpr int kHistoryLevels = 6;   // 0: steps; 5: buckets of 1,048,576 steps
// Columns of one job, and bytes of a column's name: a worker can send maps of any size.
inline constexpr size_t kHistoryColumns = 64;
inline constexpr size_t kHistoryNameBytes = 64;

// Steps of one bucket of `level`.
constexpr int64_t HistoryBucketSteps(int level) { return int64_t{1} << (4 * level); }
// Which bucket of `level` holds `step` (1-based).
constexpr int64_t HistoryBucketOf(int64_t step, int level) { return (step - 1) >> (4 * level); }

struct HistoryColumn {
  std::string name;          // "loss", "phase_seconds/forward", "memory_bytes/weights"
  std::vector<double> last;  // NaN: not reported
  std::vector<double> min;   // empty at level 0; values that are no number do not count
  std::vector<double> max;
};

struct HistoryTable {
  explicit HistoryTable(int the_level = 0) : level(the_level) {}

  int level;
  // Of each row: of its last step.
  std::vector<int64_t> steps;
  std::vector<int64_t> times_us;
  std::vector<int64_t> epochs;
  std::vector<HistoryColumn> columns;  // each as long as `steps`

  size_t num_rows() const { return steps.size(); }
  bool empty() const { return steps.empty(); }

  // Level 0: one more row. Columns beyond kHistoryColumns are left out.
  void AppendStep(const megatrain::v1::StepRecord& step);
  // One more row, that of `from` (of this level, or of a lower one: then a bucket of one).
  void AppendRow(const HistoryTable& from, size_t row);
  // Levels above 0: `from`'s row becomes a part of the last row here.
  void MergeIntoLast(const HistoryTable& from, size_t row);
  // The step as reported, of level 0.
  megatrain::v1::StepRecord ToStep(size_t row) const;

  // Rows from `first` on, `count` of them.
  HistoryTable Slice(size_t first, size_t count) const;
  void Truncate(size_t num);
  void EraseFront(size_t num);
  // Index of the first row whose step is at least `step` (rows rise).
  size_t LowerBound(int64_t step) const;
  // Bytes held.
  size_t MemoryBytes() const;

  // nullptr where there is none.
  const HistoryColumn* Find(std::string_view name) const;

 private:
  // The column of that name, `hint` tried first; made with "not reported" for the rows before
  // `num_rows`. nullptr: no room for another one.
  HistoryColumn* Column(std::string_view name, size_t hint, size_t num_rows);
  void PadTo(size_t num_rows);
};

// The columns that every step has, in order.
std::vector<std::string_view> HistoryScalarNames();

}  // namespace mt::daemon
