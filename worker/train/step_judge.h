// The verdict over a step's summed vector. It is a function of what all ranks hold alike, so all
// ranks stop at the same step or none does.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "kernels/ops/step_scalars.h"
#include "worker/engine/step_vector.h"

namespace mt::train {

// One thread. Steps are judged in their order.
class StepJudge {
 public:
  // `stop_at_nonfinite`: training.nonfinite is not "skip". `loss_scale`: of the first step judged.
  StepJudge(bool stop_at_nonfinite, const kernels::LossScaleConstants& constants, double loss_scale)
      : stop_at_nonfinite_(stop_at_nonfinite), constants_(constants), loss_scale_(loss_scale) {}

  // The error that ends the run: a rank's fault (this rank's own, or kUnavailable), or sums that
  // are not finite (cause NUMERIC) unless training goes on past such steps. `fault` is this rank's.
  Status Judge(int64_t step, const engine::StepVector& vector, const Status& fault) const;
  // The step was judged: the scale of the next one's gradients.
  void SetLossScale(double loss_scale) { loss_scale_ = loss_scale; }

 private:
  // A dynamic loss scale answers to this overflow: the loss is finite and the scale can still fall.
  bool IsForTheLossScale(const engine::StepVector& vector) const;

  const bool stop_at_nonfinite_;
  const kernels::LossScaleConstants constants_;
  double loss_scale_;  // of the gradients of the next step to be judged
};

}  // namespace mt::train
