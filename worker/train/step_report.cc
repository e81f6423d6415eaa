// The arithmetic of a record: means over tokens, rates over the time of the step.
#include "worker/train/step_report.h"

#include <charconv>
#include <cmath>
#include <unistd.h>

#include "common/base/files.h"
#include "worker/failure/failure.h"

namespace mt::train {

int64_t ResidentBytes() {
  const auto statm = base::ReadFile("/proc/self/statm");  // pages: size resident shared ...
  if (!statm.ok()) return 0;
  const size_t space = statm->find(' ');
  if (space == std::string::npos) return 0;
  int64_t pages = 0;
  std::from_chars(statm->data() + space + 1, statm->data() + statm->size(), pages);
  return pages * ::sysconf(_SC_PAGESIZE);
}

StepRecord MakeStepRecord(const StepReportConfig& config, int64_t step,
                          const engine::StepOutcome& outcome, const StepTimes& times) {
  const kernels::StepScalars& scalars = outcome.scalars;
  const double tokens = outcome.vector.sums.tokens;
  const auto batch = static_cast<double>(times.batch);
  StepRecord record{.step = step,
                    .loss = tokens > 0 ? outcome.vector.sums.loss / tokens : 0,
                    .grad_norm = scalars.grad_norm,
                    .learning_rate = scalars.lr,
                    .loss_scale = scalars.loss_scale,
                    .tokens = static_cast<int64_t>(tokens),
                    .consumed_samples = scalars.consumed_samples,
                    .skipped = scalars.skip != 0,
                    .skipped_steps = scalars.skipped_steps,
                    .step_seconds = times.step_seconds,
                    .phase_seconds = times.phase_seconds,
                    .launch_seconds = times.launch_seconds,
                    .model_flops = config.model_flops_per_sample * batch,
                    .model_flops_full = config.model_flops_full_per_sample * batch,
                    .bubble = outcome.vector.pipeline_wait / static_cast<double>(config.world_size),
                    .memory_bytes = config.memory_bytes,
                    .host_memory_bytes = ResidentBytes(),
                    .epoch = config.epoch};
  if (times.step_seconds > 0) {
    record.tokens_per_second = tokens / times.step_seconds;
    const double per_slot = 1 / times.step_seconds / 1e12 / static_cast<double>(config.world_size);
    record.tflops_per_slot = record.model_flops * per_slot;
    record.tflops_per_slot_full = record.model_flops_full * per_slot;
  }
  return record;
}

bool IsFinite(const engine::StepVector& vector) {
  return vector.sums.nonfinite == 0 && std::isfinite(vector.sums.sum_squares) &&
         std::isfinite(vector.sums.loss);
}

Status NonfiniteError(int64_t step, const engine::StepVector& vector) {
  return failure::WithCause(
      base::Internal(
          "step {}: the loss is {} and {:.0f} gradient elements are NaN or Inf; the "
          "step's update was not taken. Lower optimizer.lr, lengthen "
          "optimizer.warmup, or set training.nonfinite to skip to go on past such steps",
          step, vector.sums.tokens > 0 ? vector.sums.loss / vector.sums.tokens : vector.sums.loss,
          vector.sums.nonfinite),
      failure::Cause::kNumeric);
}

}  // namespace mt::train
