// Parts are appended in the order of importance; parts beyond the width are cut off.
#include "client/output/live_line.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "client/output/format.h"
#include "common/spec/derived.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

constexpr int kBarWidth = 20;

std::string Bar(double fraction) {
  const int filled = static_cast<int>(std::floor(std::clamp(fraction, 0.0, 1.0) * kBarWidth));
  std::string bar(static_cast<size_t>(filled), '=');
  if (filled < kBarWidth) bar += '>';
  return fmt::format("[{:<{}}]", bar, kBarWidth);
}

}  // namespace

std::string LiveLine(const megatrain::v1::Job& job, const megatrain::v1::StepRecord& step,
                     double seconds_per_step, int width) {
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
  line +=
      fmt::format("  loss {:.4f}  lr {:.2e}  gnorm {:.2f}  {} tok/s  {:.3g} TFLOP/s", step.loss(),
                  step.learning_rate(), step.grad_norm(), FormatRate(step.tokens_per_second()),
                  step.tflops_per_slot() * std::max(1, job.slots()));
  line += "  " + FormatBytes(step.host_memory_bytes());
  const std::string mesh = spec::MeshText(job.spec());
  if (!mesh.empty()) line += "  " + mesh;
  if (step.bubble() > 0) line += fmt::format("  bubble {:.0f}%", 100 * step.bubble());
  if (step.skipped_steps() > 0) line += fmt::format("  skipped {}", step.skipped_steps());
  if (!job.last_checkpoint_error().empty()) line += "  SAVE FAILED";
  if (width > 0 && line.size() > static_cast<size_t>(width))
    line.resize(static_cast<size_t>(width));
  return line;
}

}  // namespace mt::client
