// Rows of a job's history in columns: single steps (level 0), or buckets of 16^level steps with the
// minimum, maximum and last value of each column. Not thread-safe; no I/O.
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

inline constexpr int kHistoryFanOut = 16;  // buckets of a level that form one of the next
inline constexpr int kHistoryLevels = 6;   // level 0: steps; level 5: buckets of 1,048,576 steps
// Most columns per job, and bytes per column name: a worker may send maps of any size.
inline constexpr size_t kHistoryColumns = 64;
inline constexpr size_t kHistoryNameBytes = 64;

// Number of steps in a bucket of `level`.
constexpr int64_t HistoryBucketSteps(int level) { return int64_t{1} << (4 * level); }
// Index of the bucket of `level` that holds `step`; steps count from 1.
constexpr int64_t HistoryBucketOf(int64_t step, int level) { return (step - 1) >> (4 * level); }

// One metric over all rows.
struct HistoryColumn {
  std::string name;          // "loss", "phase_seconds/forward", "memory_bytes/weights"
  std::vector<double> last;  // NaN: not reported
  std::vector<double> min;   // empty at level 0; NaN does not count
  std::vector<double> max;
};

// A table of one level.
struct HistoryTable {
  explicit HistoryTable(int the_level = 0) : level(the_level) {}

  int level;
  // Of each row: step, Unix time and epoch of its last step. Steps ascend.
  std::vector<int64_t> steps;
  std::vector<int64_t> times_us;
  std::vector<int64_t> epochs;
  std::vector<HistoryColumn> columns;  // each as long as `steps`

  size_t num_rows() const { return steps.size(); }
  bool empty() const { return steps.empty(); }

  // Appends a single step; level 0 only. Metrics beyond kHistoryColumns are dropped.
  void AppendStep(const megatrain::v1::StepRecord& step);
  // Appends a row of `from`, which is of this level or a lower one: then it becomes a bucket of one
  // row.
  void AppendRow(const HistoryTable& from, size_t row);
  // Merges a row of `from` into the last bucket; levels above 0 only.
  void MergeIntoLast(const HistoryTable& from, size_t row);
  // The step as it was reported; level 0 only.
  megatrain::v1::StepRecord ToStep(size_t row) const;

  // A copy of `count` rows from `first` on.
  HistoryTable Slice(size_t first, size_t count) const;
  // Keep the first `num` rows; drop the first `num` rows.
  void Truncate(size_t num);
  void EraseFront(size_t num);
  // Index of the first row whose step is at least `step`.
  size_t LowerBound(int64_t step) const;
  // Memory of the columns' capacity.
  size_t MemoryBytes() const;

  // The column of this name, or nullptr; valid until a column is added.
  const HistoryColumn* Find(std::string_view name) const;

 private:
  // The column of this name; columns[hint] is tried first. A new one gets "not reported" for the
  // rows before `num_rows`. nullptr: there is no room for another column.
  HistoryColumn* Column(std::string_view name, size_t hint, size_t num_rows);
  void PadTo(size_t num_rows);
};

// Names of the columns of a step's scalars, in order: those that StepRecord declares. A step that
// does not report an `optional` one has no value there.
std::vector<std::string_view> HistoryScalarNames();

}  // namespace mt::daemon
