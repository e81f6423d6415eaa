// Formats are those of the fmt library; the tests format every one of them.
#include "client/output/metric_text.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "client/output/format.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/metric.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

// What the metric declares for the place; nullptr: nothing, it is not shown there.
const v1::Metric::Text* Declared(const v1::Metric& metric, MetricPlace place) {
  switch (place) {
    case MetricPlace::kLiveLine:
      return metric.has_live() ? &metric.live() : nullptr;
    case MetricPlace::kDescribe:
      return metric.has_describe() ? &metric.describe() : nullptr;
    case MetricPlace::kColumn:
      return metric.has_column() ? &metric.column() : nullptr;
  }
  return nullptr;
}

std::string Format(const v1::Metric::Text& text, double value) {
  constexpr double kPercent = 100;
  switch (text.form()) {
    case v1::Metric::RATE:
      return fmt::format(fmt::runtime(text.format()), FormatRate(value));
    case v1::Metric::BYTES:
      return fmt::format(fmt::runtime(text.format()), FormatBytes(static_cast<int64_t>(value)));
    case v1::Metric::PERCENT:
      return fmt::format(fmt::runtime(text.format()), kPercent * value);
    default:
      return fmt::format(fmt::runtime(text.format()), value);
  }
}

std::string MapText(const report::StepMetric& metric, const v1::Metric::Text& text,
                    const v1::StepRecord& step) {
  auto entries = metric.Entries(step);
  if (text.hide_zero())
    std::erase_if(entries, [](const auto& entry) { return !(entry.second > 0); });
  if (text.largest_first()) {
    std::ranges::stable_sort(entries, std::greater<>(),
                             [](const auto& entry) { return entry.second; });
  }
  std::string out;
  for (const auto& [name, value] : entries)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, Format(text, value));
  return out;
}

}  // namespace

std::vector<const report::StepMetric*> MetricsShown(MetricPlace place) {
  return report::StepMetricsInOrder([place](const report::StepMetric& metric) {
    const v1::Metric::Text* text = Declared(metric.declared(), place);
    return text == nullptr ? std::nullopt : std::optional<int>(text->order());
  });
}

std::string MetricLabel(const report::StepMetric& metric, MetricPlace place) {
  const std::string& label = Declared(metric.declared(), place)->label();
  const bool said =
      place == MetricPlace::kDescribe && metric.declared().scope() == v1::Metric::RANK_0;
  return said ? label + ", rank 0" : label;
}

std::string MetricText(const report::StepMetric& metric, MetricPlace place, double value) {
  return Format(*Declared(metric.declared(), place), value);
}

std::string MetricText(const report::StepMetric& metric, MetricPlace place,
                       const v1::StepRecord& step) {
  const v1::Metric::Text& text = *Declared(metric.declared(), place);
  if (metric.is_map()) return MapText(metric, text, step);
  const double value = metric.Value(step);
  if (!metric.IsReported(step) || (text.hide_zero() && !(value > 0))) return "";
  std::string out = Format(text, value);
  if (place != MetricPlace::kDescribe) return out;
  if (metric.declared().scope() == v1::Metric::SLOT) out += " per slot";
  if (metric.declared().scope() == v1::Metric::MEAN) out += ", mean over ranks";
  return out;
}

std::string SamplesText(const v1::EvalRecord& eval) {
  std::string out;
  int number = 0;
  for (const v1::EvalSample& sample : eval.samples()) {
    out += fmt::format("== step {}, prompt {} of {}{}\n", eval.step(), ++number,
                       eval.samples_size(), sample.finish() == "cut" ? ", cut" : "");
    out += base::CleanText(sample.prompt() + sample.text()) + "\n";
  }
  return out;
}

}  // namespace mt::client
