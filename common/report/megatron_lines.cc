// Field by field in their order; a field is a space, its text, a space and a bar.
#include "common/report/megatron_lines.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "common/report/loss_units.h"
#include "megatrain/v1/step.pb.h"

namespace mt::report {
namespace {

// Their local time is our UTC.
std::string Stamp(int64_t time_us) {
  const auto seconds = static_cast<std::time_t>(time_us / 1'000'000);
  return fmt::format(" [{:%Y-%m-%d %H:%M:%S}.{:06}]", fmt::gmtime(seconds), time_us % 1'000'000);
}

}  // namespace

void MegatronLines::Add(const megatrain::v1::StepRecord& step) {
  ++sums_.steps;
  sums_.seconds += step.step_seconds();
  if (!step.skipped()) {
    sums_.loss += step.loss();
    return;
  }
  ++sums_.skipped;
  sums_.nan += std::isfinite(step.loss()) ? 0 : 1;
}

std::string MegatronLines::Take(const megatrain::v1::StepRecord& last, const At& at) {
  const Sums sums = std::exchange(sums_, Sums{});
  const double seconds = sums.seconds / static_cast<double>(std::max<int64_t>(1, sums.steps));
  const auto counted = static_cast<double>(std::max<int64_t>(1, sums.steps - sums.skipped));
  std::string out = Stamp(last.time_us());
  out += fmt::format(" iteration {:8d}/{:8d} |", last.step(), at.total_steps);
  out += fmt::format(" consumed samples: {:12d} |", last.consumed_samples());
  out += fmt::format(" elapsed time per iteration (ms): {:.1f} |", seconds * 1000);
  const double flops = flops_per_sample_and_slot_ * static_cast<double>(at.batch);
  if (seconds > 0)
    out += fmt::format(" throughput per GPU (TFLOP/s/GPU): {:.1f} |", flops / seconds / 1e12);
  out += fmt::format(" learning rate: {:.6E} |", last.learning_rate());
  out += fmt::format(" global batch size: {:5d} |", at.batch);
  // False for what is no number, too.
  if (sums.loss >= 0) out += fmt::format(" lm loss: {:.6E} |", sums.loss / counted);
  out += fmt::format(" loss scale: {:.1f} |", last.loss_scale());
  if (!last.skipped()) out += fmt::format(" grad norm: {:.3f} |", last.grad_norm());
  out += fmt::format(" number of skipped iterations: {:3d} |", sums.skipped);
  out += fmt::format(" number of nan iterations: {:3d} |", sums.nan);
  return out;
}

std::array<std::string, 3> MegatronEvalLines(const MegatronEval& eval) {
  const char* const on = eval.final ? " on validation set" : "";
  const double perplexity = Perplexity(eval.loss).value_or(std::nan(""));
  const std::string line = fmt::format(
      " validation loss at iteration {}{} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | ",
      eval.step, on, eval.loss, perplexity);
  const std::string dashes(line.size() + 1, '-');
  return {dashes, line, dashes};
}

}  // namespace mt::report
