// Parts are appended in the order of importance; parts beyond the width are cut off.
#include "client/output/live_line.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

std::string LiveLine(const v1::Job& job, const v1::StepRecord& step, double seconds_per_step,
                     int width) {
  std::string line;
  const int64_t total = job.total_steps();
  if (total > 0) {
    const double fraction = static_cast<double>(step.step()) / static_cast<double>(total);
    line = fmt::format("{:>6}/{} {} {:3.0f}%", step.step(), total, Bar(fraction), 100 * fraction);
    const double left = static_cast<double>(total - step.step()) * seconds_per_step;
    line += fmt::format("  eta {}", seconds_per_step > 0 ? FormatDuration(left) : "-");
  } else {
    line = fmt::format("{:>6}", step.step());
  }
  for (const report::StepMetric* metric : MetricsShown(MetricPlace::kLiveLine)) {
    if (!metric->declared().live().hide_zero()) line += Part(*metric, job, step);
  }
  const std::string mesh = spec::MeshText(job.spec());
  if (!mesh.empty()) line += "  " + mesh;
  for (const report::StepMetric* metric : MetricsShown(MetricPlace::kLiveLine)) {
    if (metric->declared().live().hide_zero()) line += Part(*metric, job, step);
  }
  if (!job.last_checkpoint_error().empty()) line += "  SAVE FAILED";
  if (width > 0 && line.size() > static_cast<size_t>(width))
    line.resize(static_cast<size_t>(width));
  return line;
}

}  // namespace mt::client
