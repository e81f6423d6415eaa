// The residual add and norm between two sub-layers. It closes the branch before it (residual +
// dropout(partials + biases + position rows)) and normalises the result for the next one, in one
// kernel. It owns the norm's parameters, and computes the gradient of the closed branch's biases,
// which is a column sum of a value that it has anyway. It works on this rank's rows; under sequence
// parallelism its column sums are this rank's part of the sum (ParamSpec::partial). Legend: R rows,
// h hidden.
#pragma once

#include <string>
#include <vector>

#include "kernels/ops/add_norm.h"
#include "worker/model/branch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/pass.h"
#include "worker/params/param_store.h"

namespace mt::model {

class ResidualNorm {
 public:
  // `norm_name`: "layers.0.norm1", or empty to close a branch without a norm. `layer` as in
  // ParamSpec.
  ResidualNorm(const GptConfig& config, std::string norm_name, int layer);

  // Adds the gain and, for LayerNorm, the shift.
  void Register(params::Registry* registry);
  // Sets the branch to close. Call before Bind.
  void SetIncoming(const BranchEnd& end) { incoming_ = end; }
  void Bind(const params::ParamStore& store);
  // Takes the norm's statistics of a slot. Backward needs these and the residual, whose tensor is
  // given.
  void TakeKept(size_t slot, memory::StackArena* arena, const kernels::Tensor& residual);
  // Replaces the tensor of a slot's residual; the shape must be the same (CHECK).
  void SetResidual(size_t slot, const kernels::Tensor& residual);
  void TakeScratch(ScratchPlan* plan);

  // Writes residual(slot) and, with a norm, y [R, h]. A closed `in` (without partials) may already
  // be in residual(slot); the result is bit-equal to that of the call that closed it.
  void Forward(const Pass& pass, size_t slot, const Pending& in, const kernels::Tensor& y) const;
  // Recomputes the norm's output y from the slot's residual.
  void Normalise(const Pass& pass, size_t slot, const kernels::Tensor& y) const {
    Forward(pass, slot, {.residual = residual(slot), .partials = {}}, y);
  }
  // Backward through norm and branch. dy, partials [R, h], is the gradient of y; grad->residual is
  // the gradient of residual() from later layers. On return `grad` holds the gradients of the
  // Pending.
  void Backward(const Pass& pass, size_t slot, const kernels::Partials& dy, BranchGrad* grad) const;
  // Backward in two halves, for a gradient that waits between forward and backward (the head) or
  // crosses a chunk boundary. This half goes through the norm only: dy -> dresidual, with no
  // gradient from later layers.
  void BackwardNorm(const Pass& pass, size_t slot, const kernels::Partials& dy,
                    const kernels::Tensor& dresidual) const;
  // The other half, through the branch only: dout [R, h], the gradient of residual(), -> grad.
  void BackwardBranch(const Pass& pass, const kernels::Tensor& dout, BranchGrad* grad) const;

  const kernels::Tensor& residual(size_t slot) const { return kept_[slot].residual; }
  bool has_norm() const { return !norm_name_.empty(); }

 private:
  struct Kept {
    kernels::Tensor residual;    // [R, h]
    kernels::Tensor mean, rstd;  // accumulator type [R]; RMSNorm has no mean
  };

  // True for LayerNorm, which has a mean and a shift; RMSNorm has neither.
  bool has_shift() const { return has_norm() && config_.norm == kernels::NormKind::kLayerNorm; }
  kernels::Dropout MakeDropout(const Pass& pass) const;
  // The operands of the norm's gradient, except dy and the residual's gradients.
  kernels::AddNormGradArgs NormGradArgs(const Pass& pass, size_t slot) const;
  // Adds the operands of the branch.
  void AddBranch(const Pass& pass, const BranchGrad& grad, kernels::AddNormGradArgs* args) const;
  // The branch's bias, or the sum of both biases of a parallel residual.
  kernels::Tensor BiasSum(const Pass& pass) const;
  // Copies the bias gradient to the other bias, which has the same one, and reports both as done.
  void FinishBiases(const Pass& pass) const;

  const GptConfig config_;
  const std::string norm_name_;
  const int layer_;
  BranchEnd incoming_;
  params::ParamId gain_id_ = params::ParamId::kNone;
  params::ParamId shift_id_ = params::ParamId::kNone;
  kernels::Tensor gain_, shift_, bias_, positions_;  // weights; empty if absent
  kernels::Tensor dgain_, dshift_, dbias_;           // gradients
  kernels::Tensor other_bias_, dother_bias_;         // only with a parallel residual
  kernels::Tensor bias_sum_;                         // scratch [h], with other_bias_
  std::vector<Kept> kept_;                           // [slot]
};

}  // namespace mt::model
