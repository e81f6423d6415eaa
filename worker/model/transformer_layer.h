// One pre-norm transformer layer (Radford et al. 2019): two borders, each followed by a branch; or,
// with a parallel residual (Wang & Komatsuzaki 2021), one border followed by both, whose sum is one
// branch. It takes an open branch and leaves one, so that residual add, bias, dropout and norm are
// one kernel across layers too. Between the borders and the branches stand tensor parallelism's
// Gather and Reduce. Legend: T rows of the branches, R rows of the borders, h hidden.
#pragma once

#include <vector>

#include "worker/model/attention_block.h"
#include "worker/model/border.h"
#include "worker/model/mlp_block.h"

namespace mt::model {

class TransformerLayer {
 public:
  // Scratch that all layers of a stage share.
  struct Buffers {
    kernels::Tensor partial;  // [T, h] open output of the running branch
    kernels::Tensor dnorm;    // [T, h] gradient of a norm's output; may be partial's buffer
    kernels::Tensor second;   // [T, h], with a parallel residual: the same of the second branch
    kernels::Tensor y;        // [R, h], where norm outputs are computed again
    kernels::Tensor x;        // [T, h], where rows are cut: the norm's output of all ranks
    kernels::Tensor dbranch;  // [T, h], where rows are cut: the branch's gradient of all ranks
    kernels::Tensor carry;    // [R, h], where layers are recomputed: the residual that they leave
  };
  // Where its borders keep the residuals that they close, [R, h].
  struct Residuals {
    kernels::Tensor before;  // the layer's input; SetInput moves it
    kernels::Tensor middle;  // behind the attention branch; absent: taken from the arena
  };

  // layer: global number.
  TransformerLayer(const GptConfig& config, int layer);

  // `incoming`: the branch before this layer. Sets the borders; registers in the network's order.
  void Register(params::Registry* registry, const BranchEnd& incoming);
  void Bind(const params::ParamStore& store);
  void TakeKept(size_t slot, memory::StackArena* arena, const Residuals& residuals);
  void SetInput(size_t slot, const kernels::Tensor& residual) {
    norm1_.SetResidual(slot, residual);
  }
  void TakeScratch(ScratchPlan* plan);

  // Returns the layer's last branch, whose partials lie in the buffers.
  Pending Forward(const Pass& pass, size_t slot, const Pending& in, const Buffers& buffers) const;
  // The same without that branch's output: only what backward needs.
  void ForwardKept(const Pass& pass, size_t slot, const Pending& in, const Buffers& buffers) const;
  // grad: of the returned Pending, then of `in`.
  void Backward(const Pass& pass, size_t slot, const Buffers& buffers, BranchGrad* grad) const;
  // Valid after Register.
  BranchEnd end() const;

 private:
  struct Kept {
    kernels::Tensor y1, y2;  // [R, h] outputs of the norms; absent where computed again
  };

  bool parallel() const { return config_.parallel_residual; }
  bool keeps_norms() const { return config_.recompute.mode != RecomputeMode::kSelective; }
  // Up to the input [T, h] of the feed-forward branch, which it returns. attention_out: somebody
  // reads the attention branch's output.
  kernels::Tensor ForwardAttention(const Pass& pass, size_t slot, const Pending& in,
                                   const Buffers& buffers, bool attention_out) const;
  // A norm's output, [T, h], for backward: kept, or computed again.
  kernels::Tensor InputAgain(const Pass& pass, const Border& norm, size_t slot,
                             const Buffers& buffers) const;
  void BackwardParallel(const Pass& pass, size_t slot, const Buffers& buffers,
                        BranchGrad* grad) const;

  const GptConfig config_;
  Border norm1_;
  AttentionBlock attention_;
  Border norm2_;  // not with a parallel residual
  MlpBlock mlp_;
  std::vector<Kept> kept_;  // by slot
};

}  // namespace mt::model
