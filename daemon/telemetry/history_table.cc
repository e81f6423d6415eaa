// Steps become rows by the metrics that StepRecord declares; and the operations on columns. Columns
// that a row does not report are padded with NaN, so all columns have the length of `steps`.
#include "daemon/telemetry/history_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "common/base/check.h"
#include "common/report/step_metrics.h"
#include "megatrain/v1/metric.pb.h"
#include "megatrain/v1/step.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kPhase = "phase_seconds/";
constexpr std::string_view kMemory = "memory_bytes/";

// The scalars of a step, in the order of their columns; the list is made once.
const std::vector<const report::StepMetric*>& Scalars() {
  static const std::vector<const report::StepMetric*> scalars =
      report::StepMetricsInOrder([](const report::StepMetric& metric) {
        return metric.is_map() ? std::nullopt
                               : std::optional<int>(metric.declared().history_order());
      });
  return scalars;
}

double Smaller(double a, double b) { return std::isnan(a) || b < a ? b : a; }
double Larger(double a, double b) { return std::isnan(a) || b > a ? b : a; }

}  // namespace

std::vector<std::string_view> HistoryScalarNames() {
  std::vector<std::string_view> names;
  names.reserve(Scalars().size());
  for (const report::StepMetric* scalar : Scalars()) names.push_back(scalar->name());
  return names;
}

HistoryColumn* HistoryTable::Column(std::string_view name, size_t hint, size_t num_rows) {
  if (hint < columns.size() && columns[hint].name == name) return &columns[hint];
  const auto found =
      std::ranges::find_if(columns, [&](const HistoryColumn& c) { return c.name == name; });
  if (found != columns.end()) return &*found;
  if (columns.size() == kHistoryColumns || name.empty() || name.size() > kHistoryNameBytes) {
    return nullptr;
  }
  HistoryColumn column{.name = std::string(name)};
  column.last.assign(num_rows, kMissing);
  if (level > 0) column.min = column.max = column.last;
  columns.push_back(std::move(column));
  return &columns.back();
}

void HistoryTable::PadTo(size_t num_rows) {
  for (HistoryColumn& column : columns) {
    column.last.resize(num_rows, kMissing);
    if (level == 0) continue;
    column.min.resize(num_rows, kMissing);
    column.max.resize(num_rows, kMissing);
  }
}

void HistoryTable::AppendStep(const v1::StepRecord& step) {
  CHECK_EQ(level, 0) << "a bucket is no step";
  const size_t rows = num_rows();
  size_t hint = 0;
  const auto put = [&](std::string_view name, double value) {
    HistoryColumn* column = Column(name, hint++, rows);
    if (column != nullptr) column->last.resize(rows + 1, value);
  };
  for (const report::StepMetric* scalar : Scalars()) {
    if (scalar->IsReported(step)) put(scalar->name(), scalar->Value(step));
  }
  for (const auto& [phase, seconds] : step.phase_seconds()) {
    put(std::string(kPhase) + phase, seconds);
  }
  for (const auto& [kind, bytes] : step.memory_bytes()) {
    put(std::string(kMemory) + kind, static_cast<double>(bytes));
  }
  steps.push_back(step.step());
  times_us.push_back(step.time_us());
  epochs.push_back(step.epoch());
  PadTo(rows + 1);
}

void HistoryTable::AppendRow(const HistoryTable& from, size_t row) {
  const size_t rows = num_rows();
  for (size_t i = 0; i < from.columns.size(); ++i) {
    const HistoryColumn& source = from.columns[i];
    HistoryColumn* column = Column(source.name, i, rows);
    if (column == nullptr) continue;
    column->last.push_back(source.last[row]);
    if (level == 0) continue;
    column->min.push_back(from.level == 0 ? source.last[row] : source.min[row]);
    column->max.push_back(from.level == 0 ? source.last[row] : source.max[row]);
  }
  steps.push_back(from.steps[row]);
  times_us.push_back(from.times_us[row]);
  epochs.push_back(from.epochs[row]);
  PadTo(rows + 1);
}

void HistoryTable::MergeIntoLast(const HistoryTable& from, size_t row) {
  CHECK_GT(level, 0) << "steps are not merged";
  CHECK(!empty()) << "there is no row to merge into";
  const size_t last = num_rows() - 1;
  // If this part does not report a column, the bucket's last value of it is missing.
  for (HistoryColumn& column : columns) column.last[last] = kMissing;
  for (size_t i = 0; i < from.columns.size(); ++i) {
    const HistoryColumn& source = from.columns[i];
    HistoryColumn* column = Column(source.name, i, num_rows());
    if (column == nullptr) continue;
    column->last[last] = source.last[row];
    const double low = from.level == 0 ? source.last[row] : source.min[row];
    const double high = from.level == 0 ? source.last[row] : source.max[row];
    column->min[last] = Smaller(column->min[last], low);
    column->max[last] = Larger(column->max[last], high);
  }
  steps[last] = from.steps[row];
  times_us[last] = from.times_us[row];
  epochs[last] = from.epochs[row];
}

v1::StepRecord HistoryTable::ToStep(size_t row) const {
  v1::StepRecord step;
  step.set_step(steps[row]);
  step.set_time_us(times_us[row]);
  step.set_epoch(epochs[row]);
  for (size_t i = 0; i < Scalars().size(); ++i) {
    const report::StepMetric& scalar = *Scalars()[i];
    const HistoryColumn* column =
        i < columns.size() && columns[i].name == scalar.name() ? &columns[i] : Find(scalar.name());
    if (column != nullptr) scalar.SetValue(&step, column->last[row]);
  }
  for (const HistoryColumn& column : columns) {
    const std::string_view name = column.name;
    const double value = column.last[row];
    if (std::isnan(value)) continue;
    if (name.starts_with(kPhase)) {
      (*step.mutable_phase_seconds())[std::string(name.substr(kPhase.size()))] = value;
    } else if (name.starts_with(kMemory)) {
      (*step.mutable_memory_bytes())[std::string(name.substr(kMemory.size()))] =
          static_cast<int64_t>(value);
    }
  }
  return step;
}

HistoryTable HistoryTable::Slice(size_t first, size_t count) const {
  HistoryTable out(level);
  const auto cut = [&](const auto& from, auto* to) {
    if (from.empty()) return;
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
    to->assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  cut(steps, &out.steps);
  cut(times_us, &out.times_us);
  cut(epochs, &out.epochs);
  for (const HistoryColumn& column : columns) {
    HistoryColumn copy{.name = column.name};
    cut(column.last, &copy.last);
    cut(column.min, &copy.min);
    cut(column.max, &copy.max);
    out.columns.push_back(std::move(copy));
  }
  return out;
}

void HistoryTable::Truncate(size_t num) {
  if (num >= num_rows()) return;
  *this = Slice(0, num);
}

void HistoryTable::EraseFront(size_t num) { *this = Slice(num, num_rows() - num); }

size_t HistoryTable::LowerBound(int64_t step) const {
  return static_cast<size_t>(std::ranges::lower_bound(steps, step) - steps.begin());
}

size_t HistoryTable::MemoryBytes() const {
  size_t bytes = (steps.capacity() + times_us.capacity() + epochs.capacity()) * sizeof(int64_t);
  for (const HistoryColumn& column : columns) {
    bytes +=
        sizeof(column) + column.name.capacity() +
        (column.last.capacity() + column.min.capacity() + column.max.capacity()) * sizeof(double);
  }
  return bytes;
}

const HistoryColumn* HistoryTable::Find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(columns, [&](const HistoryColumn& c) { return c.name == name; });
  return found == columns.end() ? nullptr : &*found;
}

}  // namespace mt::daemon
