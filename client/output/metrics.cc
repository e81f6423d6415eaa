// Records become points by the metrics that StepRecord declares, and points become text in three
// forms.
#include "client/output/metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "client/output/format.h"
#include "client/output/json.h"
#include "client/output/metric_text.h"
#include "common/spec/fault.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;
using nlohmann::ordered_json;

// True where the metric that the name begins with is a whole number.
bool IsInteger(std::string_view name) {
  const report::StepMetric* metric = report::FindStepMetric(name.substr(0, name.find('/')));
  return metric != nullptr && metric->is_integer();
}

std::string JsonNumber(double value, bool integer) {
  if (!std::isfinite(value)) return "null";
  // Above 2^53 a double does not represent every integer.
  if (integer && std::abs(value) < 9.0e15) return std::to_string(std::llround(value));
  return ordered_json(value).dump();
}

// `,"loss":` and the like. A line has dozens of keys, and there may be a million lines: each key's
// text is made once.
struct JsonKeys {
  explicit JsonKeys(const std::string& name)
      : last(Key(name)),
        min(Key(name + "_min")),
        max(Key(name + "_max")),
        integer(IsInteger(name)) {}
  static std::string Key(const std::string& name) {
    return "," + JsonText(ordered_json(name), -1) + ":";
  }
  std::string last, min, max;
  bool integer;
};

bool AnyRange(const Metrics& metrics) {
  return std::any_of(metrics.points.begin(), metrics.points.end(), [](const MetricPoint& p) {
    return std::any_of(p.values.begin(), p.values.end(),
                       [](const MetricValue& v) { return v.min.has_value(); });
  });
}

// The shortest text that reads back as the same double; "" for NaN and infinities.
std::string CsvNumber(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

void JoinEvaluations(const v1::History& history, Metrics* out) {
  for (const v1::EvalRecord& eval : history.evals()) {
    if (!eval.split().empty() && eval.split() != "valid") continue;
    const auto at =
        std::lower_bound(out->points.begin(), out->points.end(), eval.step(),
                         [](const MetricPoint& point, int64_t step) { return point.step < step; });
    if (at == out->points.end()) continue;
    at->validation_loss = eval.loss();
    at->validation_perplexity.reset();
    at->validation_bits_per_byte.reset();
    if (eval.has_perplexity()) at->validation_perplexity = eval.perplexity();
    if (eval.has_bits_per_byte()) at->validation_bits_per_byte = eval.bits_per_byte();
  }
}

// What a point has of an evaluation, by name.
constexpr std::pair<const char*, std::optional<double> MetricPoint::*> kOfEvaluations[] = {
    {"validation_loss", &MetricPoint::validation_loss},
    {"validation_perplexity", &MetricPoint::validation_perplexity},
    {"validation_bits_per_byte", &MetricPoint::validation_bits_per_byte}};

// The text of a column's value; "-" where an `optional` metric was not reported.
std::string ColumnText(const report::StepMetric& metric, double value) {
  if (std::isnan(value) && !metric.IsReported(v1::StepRecord())) return "-";
  return MetricText(metric, MetricPlace::kColumn, value);
}

std::string Fixed(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

}  // namespace

Metrics FromHistory(const v1::History& history) {
  Metrics out;
  for (const auto& column : history.columns()) out.names.push_back(column.name());
  out.has_attempts = !history.attempts().empty();
  for (int i = 0; i < history.steps_size(); ++i) {
    MetricPoint point{.step = history.steps(i)};
    if (i < history.times_us_size()) point.time_us = history.times_us(i);
    if (i < history.epochs_size()) point.epoch = history.epochs(i);
    if (i < history.attempts_size()) point.attempt = history.attempts(i);
    for (const auto& column : history.columns()) {
      MetricValue value{.last = std::nan(""), .min = {}, .max = {}};
      if (i < column.last_size()) value.last = column.last(i);
      if (i < column.min_size()) value.min = column.min(i);
      if (i < column.max_size()) value.max = column.max(i);
      point.values.push_back(value);
    }
    out.points.push_back(std::move(point));
  }
  JoinEvaluations(history, &out);
  return out;
}

Metrics FromStep(const v1::StepRecord& step) {
  Metrics out;
  out.points.push_back({.step = step.step(), .time_us = step.time_us(), .epoch = step.epoch()});
  const auto add = [&](std::string name, double value) {
    out.names.push_back(std::move(name));
    out.points[0].values.push_back({.last = value, .min = {}, .max = {}});
  };
  for (const report::StepMetric& metric : report::StepMetrics()) {
    if (!metric.is_map()) add(metric.name(), metric.Value(step));
  }
  for (const report::StepMetric& metric : report::StepMetrics()) {
    if (!metric.is_map()) continue;
    for (const auto& [key, value] : metric.Entries(step))
      add(fmt::format("{}/{}", metric.name(), key), value);
  }
  return out;
}

Status NoSuchMetric(const std::string& job, const std::string& name) {
  const std::string near = spec::Nearest(name, FromStep(v1::StepRecord()).names);
  return base::NotFound("job {} has no metric {}{}", job, name,
                        near.empty() ? "" : "; did you mean " + near + "?");
}

Metrics Select(const Metrics& metrics, const std::vector<std::string>& names) {
  Metrics out{.names = {}, .points = metrics.points, .has_attempts = metrics.has_attempts};
  for (MetricPoint& point : out.points) point.values.clear();
  for (const std::string& name : names) {
    const auto at = std::find(metrics.names.begin(), metrics.names.end(), name);
    if (at == metrics.names.end()) continue;
    const auto index = static_cast<size_t>(at - metrics.names.begin());
    out.names.push_back(name);
    for (size_t i = 0; i < out.points.size(); ++i)
      out.points[i].values.push_back(metrics.points[i].values[index]);
  }
  return out;
}

std::vector<std::string> Align(bool more, std::vector<std::string>* names, Metrics* metrics) {
  std::vector<std::string> fresh;
  for (const std::string& name : metrics->names) {
    if (std::find(names->begin(), names->end(), name) == names->end()) fresh.push_back(name);
  }
  if (more) names->insert(names->end(), fresh.begin(), fresh.end());
  if (metrics->names == *names) return fresh;
  std::vector<size_t> from;  // of each name; names.size(): not there
  for (const std::string& name : *names) {
    from.push_back(static_cast<size_t>(
        std::find(metrics->names.begin(), metrics->names.end(), name) - metrics->names.begin()));
  }
  for (MetricPoint& point : metrics->points) {
    std::vector<MetricValue> values;
    values.reserve(from.size());
    for (const size_t i : from) {
      values.push_back(i < point.values.size()
                           ? point.values[i]
                           : MetricValue{.last = std::nan(""), .min = {}, .max = {}});
    }
    point.values = std::move(values);
  }
  metrics->names = *names;
  return fresh;
}

std::string MetricsJsonl(const Metrics& metrics) {
  const std::vector<JsonKeys> keys(metrics.names.begin(), metrics.names.end());
  std::string out;
  for (const MetricPoint& point : metrics.points) {
    out += fmt::format("{{\"step\":{},\"time_us\":{},\"epoch\":{}", point.step, point.time_us,
                       point.epoch);
    if (point.attempt > 0) out += fmt::format(",\"attempt\":{}", point.attempt);
    for (size_t i = 0; i < keys.size(); ++i) {
      const MetricValue& value = point.values[i];
      out += keys[i].last + JsonNumber(value.last, keys[i].integer);
      if (value.min) out += keys[i].min + JsonNumber(*value.min, keys[i].integer);
      if (value.max) out += keys[i].max + JsonNumber(*value.max, keys[i].integer);
    }
    for (const auto& [name, member] : kOfEvaluations) {
      const std::optional<double>& value = point.*member;
      if (value) out += JsonKeys::Key(name) + JsonNumber(*value, false);
    }
    out += "}\n";
  }
  return out;
}

std::string MetricsCsv(const Metrics& metrics, bool header) {
  const bool ranges = AnyRange(metrics);
  std::string out;
  if (header) {
    out = metrics.has_attempts ? "step,time_us,epoch,attempt" : "step,time_us,epoch";
    for (const std::string& name : metrics.names)
      out += ranges ? fmt::format(",{0},{0}_min,{0}_max", name) : "," + name;
    for (const auto& [name, member] : kOfEvaluations) out += fmt::format(",{}", name);
    out += "\r\n";
  }
  for (const MetricPoint& point : metrics.points) {
    out += fmt::format("{},{},{}", point.step, point.time_us, point.epoch);
    if (metrics.has_attempts) out += point.attempt > 0 ? fmt::format(",{}", point.attempt) : ",";
    for (const MetricValue& value : point.values) {
      out += "," + CsvNumber(value.last);
      if (ranges) {
        out += fmt::format(",{},{}", value.min ? CsvNumber(*value.min) : "",
                           value.max ? CsvNumber(*value.max) : "");
      }
    }
    for (const auto& [name, member] : kOfEvaluations) {
      const std::optional<double>& value = point.*member;
      out += "," + (value ? CsvNumber(*value) : "");
    }
    out += "\r\n";
  }
  return out;
}

Rows MetricsRows(const Metrics& metrics, const Style& style, bool wide) {
  Rows rows = {{"STEP", TimeHeader(style, "AGE", "TIME")}};
  const bool attempts = wide && metrics.has_attempts;
  if (attempts) rows[0].emplace_back("ATTEMPT");
  std::vector<std::pair<size_t, std::function<std::string(double)>>> shown;
  if (wide) {
    for (size_t i = 0; i < metrics.names.size(); ++i) {
      rows[0].push_back(metrics.names[i]);
      shown.emplace_back(i, [](double v) { return fmt::format("{:.6g}", v); });
    }
  } else {
    for (const report::StepMetric* metric : MetricsShown(MetricPlace::kColumn)) {
      const auto at = std::find(metrics.names.begin(), metrics.names.end(), metric->name());
      if (at == metrics.names.end()) continue;
      rows[0].push_back(MetricLabel(*metric, MetricPlace::kColumn));
      shown.emplace_back(static_cast<size_t>(at - metrics.names.begin()),
                         [metric](double v) { return ColumnText(*metric, v); });
    }
  }
  rows[0].push_back("VALID");
  const bool bits = std::ranges::any_of(metrics.points, [](const MetricPoint& point) {
    return point.validation_bits_per_byte.has_value();
  });
  if (bits) rows[0].push_back("VALID BITS");
  for (const MetricPoint& point : metrics.points) {
    std::vector<std::string> row = {std::to_string(point.step), TimeCell(style, point.time_us)};
    if (attempts) row.push_back(point.attempt > 0 ? std::to_string(point.attempt) : "-");
    for (const auto& [index, format] : shown) row.push_back(format(point.values[index].last));
    row.push_back(Fixed(point.validation_loss));
    if (bits) row.push_back(Fixed(point.validation_bits_per_byte));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace mt::client
