// Faults come before sums: a rank at fault has spoiled the loss of its step.
#include "worker/train/step_judge.h"

#include <cmath>

#include "worker/train/step_report.h"

namespace mt::train {

Status StepJudge::Judge(int64_t step, const engine::StepVector& vector, const Status& fault) const {
  if (vector.fault > 0) {
    if (!fault.ok()) return fault;
    return base::Unavailable("step {}: {:.0f} other rank(s) reported a fault; all ranks stop", step,
                             vector.fault);
  }
  if (IsFinite(vector) || !stop_at_nonfinite_ || IsForTheLossScale(vector)) return OkStatus();
  return NonfiniteError(step, vector);
}

bool StepJudge::IsForTheLossScale(const engine::StepVector& vector) const {
  return constants_.kind == kernels::LossScaleKind::kDynamic && std::isfinite(vector.sums.loss) &&
         loss_scale_ > constants_.min;
}

}  // namespace mt::train
