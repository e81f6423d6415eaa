// The border between two sub-layers: closes the branch before it (residual + dropout(partials +
// biases + position rows)) and normalises the result for the next one. Owns the norm's parameters
// and writes the gradient of the closed branch's biases, which is a column sum of what it computes
// anyway. Works on this rank's rows; under sequence parallelism its column sums are this rank's
// part (ParamSpec::partial). Legend: R rows, h hidden.
#pragma once

#include <string>
#include <vector>

#include "kernels/ops/add_norm.h"
#include "worker/model/branch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/pass.h"
#include "worker/params/param_store.h"

namespace mt::model {

class Border {
 public:
  // norm_name: "layers.0.norm1", or "" to close without a norm. `layer` as in ParamSpec.
  Border(const GptConfig& config, std::string norm_name, int layer);

  void Register(params::Registry* registry);
  // The branch that this border closes; before Bind.
  void SetIncoming(const BranchEnd& end) { incoming_ = end; }
  void Bind(const params::ParamStore& store);
  // Takes the norm's statistics of a slot. The residual, whose place is given, and they are what
  // backward needs.
  void TakeKept(size_t slot, memory::StackArena* arena, const kernels::Tensor& residual);
  // Another place for a slot's residual.
  void SetResidual(size_t slot, const kernels::Tensor& residual);
  void TakeScratch(ScratchPlan* plan);

  // Writes residual(slot) and, with a norm, y [R, h]. A closed `in` (no partials) may already lie
  // in residual(slot); the result is the same, bit for bit, as that of the call that closed it.
  void Forward(const Pass& pass, size_t slot, const Pending& in, const kernels::Tensor& y) const;
  // The norm's output again, from the slot's residual.
  void Normalise(const Pass& pass, size_t slot, const kernels::Tensor& y) const {
    Forward(pass, slot, {.residual = residual(slot), .partials = {}}, y);
  }
  // Through norm and branch: dy, partials [R, h], is the gradient of y, grad->residual that of
  // residual() from later layers; afterwards grad holds the gradients of the Pending.
  void Backward(const Pass& pass, size_t slot, const kernels::Partials& dy, BranchGrad* grad) const;
  // The same in two halves, where the gradient waits between forward and backward (the head) or
  // crosses a stage border. Through the norm only: dy -> dresidual, with nothing from later layers.
  void BackwardNorm(const Pass& pass, size_t slot, const kernels::Tensor& dy,
                    const kernels::Tensor& dresidual) const;
  // Through the branch only: dout [R, h], the gradient of residual(), -> grad.
  void BackwardBranch(const Pass& pass, const kernels::Tensor& dout, BranchGrad* grad) const;

  const kernels::Tensor& residual(size_t slot) const { return kept_[slot].residual; }
  bool has_norm() const { return !norm_name_.empty(); }

 private:
  struct Kept {
    kernels::Tensor residual;    // [R, h]
    kernels::Tensor mean, rstd;  // accumulator type [R]; RMSNorm has no mean
  };

  // LayerNorm's mean and shift, which RMSNorm does without.
  bool has_shift() const { return has_norm() && config_.norm == kernels::NormKind::kLayerNorm; }
  kernels::Dropout MakeDropout(const Pass& pass) const;
  // Operands of the norm's gradient, without dy and the residual's gradients.
  kernels::AddNormGradArgs NormGradArgs(const Pass& pass, size_t slot) const;
  // Adds those of the branch.
  void AddBranch(const Pass& pass, const BranchGrad& grad, kernels::AddNormGradArgs* args) const;
  // The branch's bias, or the sum of both.
  kernels::Tensor BiasSum(const Pass& pass) const;
  // The bias gradients are written: the other bias' is the same.
  void FinishBiases(const Pass& pass) const;

  const GptConfig config_;
  const std::string norm_name_;
  const int layer_;
  BranchEnd incoming_;
  params::ParamId gain_id_ = params::ParamId::kNone;
  params::ParamId shift_id_ = params::ParamId::kNone;
  kernels::Tensor gain_, shift_, bias_, positions_;  // weights; absent where there is none
  kernels::Tensor dgain_, dshift_, dbias_;           // gradients
  kernels::Tensor other_bias_, dother_bias_;         // absent unless two branches were one
  kernels::Tensor bias_sum_;                         // scratch [h], with other_bias_
  std::vector<Kept> kept_;                           // by slot
};

}  // namespace mt::model
