// Fields stand in the order of importance; those that do not fit are left out whole.
#include "client/output/live_line.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "client/output/format.h"
#include "client/output/metric_text.h"
#include "common/spec/derived.h"
#include "megatrain/v1/metric.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

constexpr int kBarWidth = 20;

std::string Bar(double fraction) {
  const int filled = static_cast<int>(std::floor(std::clamp(fraction, 0.0, 1.0) * kBarWidth));
  std::string bar(static_cast<size_t>(filled), '=');
  if (filled < kBarWidth) bar += '>';
  return fmt::format("[{:<{}}]", bar, kBarWidth);
}

// A field with what separates it from the one before, and when it goes where room is short: the
// highest number first, 0 never.
struct LiveField {
  std::string text;
  int goes = 0;
};

constexpr int kBarGoes = 1'000;
constexpr int kFirstMetricGoes = 10;
constexpr int kDoingGoes = 2;
constexpr int kSaveFailedGoes = 1;

// The metric behind two spaces, or nothing. The line is of the whole job: what is reported for a
// slot is multiplied by their number.
std::string Part(const report::StepMetric& metric, const v1::Job& job, const v1::StepRecord& step) {
  if (metric.declared().scope() == v1::Metric::SLOT && metric.IsReported(step)) {
    const double value = metric.Value(step) * std::max(1, job.slots());
    return "  " + MetricText(metric, MetricPlace::kLiveLine, value);
  }
  const std::string text = MetricText(metric, MetricPlace::kLiveLine, step);
  return text.empty() ? "" : "  " + text;
}

std::vector<LiveField> LiveFields(const v1::Job& job, const v1::StepRecord& step,
                                  double seconds_per_step, std::string_view doing) {
  std::vector<LiveField> fields;
  int goes = kFirstMetricGoes;
  const auto add = [&](std::string text) { fields.push_back({std::move(text), goes++}); };
  const int64_t total = job.total_steps();
  if (total > 0) {
    const double fraction = static_cast<double>(step.step()) / static_cast<double>(total);
    fields.push_back({fmt::format("{:>6}/{}", step.step(), total), 0});
    fields.push_back({" " + Bar(fraction), kBarGoes});
    add(fmt::format(" {:3.0f}%", 100 * fraction));
    const double left = static_cast<double>(total - step.step()) * seconds_per_step;
    add(fmt::format("  eta {}", seconds_per_step > 0 ? FormatDuration(left) : "-"));
  } else {
    fields.push_back({fmt::format("{:>6}", step.step()), 0});
  }
  for (const report::StepMetric* metric : MetricsShown(MetricPlace::kLiveLine)) {
    if (!metric->declared().live().hide_zero()) add(Part(*metric, job, step));
  }
  const std::string mesh = spec::MeshText(job.spec());
  if (!mesh.empty()) add("  " + mesh);
  for (const report::StepMetric* metric : MetricsShown(MetricPlace::kLiveLine)) {
    if (metric->declared().live().hide_zero()) add(Part(*metric, job, step));
  }
  if (!doing.empty()) fields.push_back({fmt::format("  {}", doing), kDoingGoes});
  if (!job.last_checkpoint_error().empty()) fields.push_back({"  SAVE FAILED", kSaveFailedGoes});
  return fields;
}

}  // namespace

std::string LiveLine(const v1::Job& job, const v1::StepRecord& step, double seconds_per_step,
                     std::string_view doing, int width) {
  std::vector<LiveField> fields = LiveFields(job, step, seconds_per_step, doing);
  const auto drop = [&] {
    const auto least = std::ranges::max_element(fields, {}, &LiveField::goes);
    fields.erase(least);
  };
  if (width <= 0) std::erase_if(fields, [](const LiveField& f) { return f.goes == kBarGoes; });
  for (;;) {
    std::string line;
    for (const LiveField& field : fields) line += field.text;
    if (width <= 0 || DisplayWidth(line) <= static_cast<size_t>(width) || fields.size() == 1)
      return line;
    drop();
  }
}

}  // namespace mt::client
