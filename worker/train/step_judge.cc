// Faults come before sums: a rank at fault has spoiled the loss of its step.
#include "worker/train/step_judge.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "worker/failure/failure.h"
#include "worker/train/step_report.h"

namespace mt::train {
namespace {

// Steps in a row at the end of a run that are no accident.
constexpr int64_t kSkippedAtEnd = 10;

std::string Advice(const engine::StepOutcome& last, bool scaled, int64_t first) {
  if (last.vector.sums.tokens == 0)
    return "No token of these steps counts for the loss: look at the data and "
           "data.eod_mask_loss";
  if (scaled && std::isfinite(last.vector.sums.loss))
    return "The gradients overflow at this loss scale: lower training.loss_scale.value, leave it "
           "out for a dynamic one, or train in bf16";
  const std::string from =
      first > 1 ? fmt::format(" from a checkpoint older than step {} (checkpoint.load)", first - 1)
                : std::string();
  return fmt::format(
      "Train{} with a lower optimizer.lr, a longer optimizer.warmup or a tighter "
      "optimizer.clip_grad",
      from);
}

}  // namespace

Status StepJudge::Judge(int64_t step, const engine::StepVector& vector, const Status& fault) const {
  if (vector.fault > 0) {
    if (!fault.ok()) return fault;
    return base::Unavailable("step {}: {:.0f} other rank(s) reported a fault; all ranks stop", step,
                             vector.fault);
  }
  if (IsFinite(vector) || !args_.stop_at_nonfinite || IsForTheLossScale(vector)) return OkStatus();
  return NonfiniteError(step, vector);
}

Status StepJudge::Count(int64_t step, const engine::StepOutcome& outcome) {
  const bool for_scale = !IsFinite(outcome.vector) && IsForTheLossScale(outcome.vector);
  const double loss_scale = std::exchange(loss_scale_, outcome.scalars.loss_scale);
  if (outcome.scalars.skip == 0) {
    row_ = {};
    return OkStatus();
  }
  if (row_.first == 0) row_.first = step;
  row_.last = step;
  row_.counted += for_scale ? 0 : 1;
  row_.loss_scale = loss_scale;
  row_.outcome = outcome;
  const int64_t limit = args_.stop_after_skipped;
  if (limit == 0 || for_scale || row_.counted < limit) return OkStatus();
  return SkippedError(fmt::format("training.stop_after_skipped is {}", limit));
}

Status StepJudge::JudgeEnd(int64_t saved_step) const {
  const int64_t limit = std::min(args_.stop_after_skipped, kSkippedAtEnd);
  if (limit == 0 || row_.counted < limit || row_.first > saved_step + 1) return OkStatus();
  return SkippedError(fmt::format(
      "the run ends with them, and no step was taken after its {}",
      saved_step > 0 ? fmt::format("last save, of step {}", saved_step) : std::string("start")));
}

Status StepJudge::SkippedError(std::string_view how) const {
  const engine::StepVector& sums = row_.outcome.vector;
  const double tokens = sums.sums.tokens;
  return failure::WithCause(
      base::Internal(
          "the last {} steps, from step {} to step {}, were all skipped ({}): the weights are "
          "those "
          "of step {}. {} of the {} steps of this run were skipped; in step {} the loss was {}, "
          "{:.0f} gradient elements were NaN or Inf, and the loss scale was {:g}. {}",
          row_.last - row_.first + 1, row_.first, row_.last, how, row_.first - 1,
          row_.outcome.scalars.skipped_steps, row_.last, row_.last,
          tokens > 0 ? sums.sums.loss / tokens : sums.sums.loss, sums.sums.nonfinite,
          row_.loss_scale,
          Advice(row_.outcome,
                 args_.scale.kind == kernels::LossScaleKind::kStatic && row_.loss_scale != 1,
                 row_.first)),
      failure::Cause::kNumeric);
}

bool StepJudge::IsForTheLossScale(const engine::StepVector& vector) const {
  return args_.scale.kind == kernels::LossScaleKind::kDynamic && std::isfinite(vector.sums.loss) &&
         loss_scale_ > args_.scale.min;
}

void StepsSinceSave::Start(int64_t step, const kernels::StepScalars& scalars) {
  begun_step_ = step;
  Saved(step, scalars);
}

StepsSinceSave::Counts StepsSinceSave::Begin(int64_t step, const kernels::StepScalars& scalars) {
  begun_step_ = step;
  Counts counts{.steps = step - step_, .skipped = scalars.skipped_steps - skipped_};
  counts.spoiled = counts.steps > 0 && (counts.skipped == counts.steps || !loss_is_finite_);
  return counts;
}

void StepsSinceSave::Saved(int64_t step, const kernels::StepScalars& scalars) {
  step_ = step;
  skipped_ = scalars.skipped_steps;
}

}  // namespace mt::train
