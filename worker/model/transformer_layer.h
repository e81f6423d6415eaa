// One pre-norm transformer layer (Radford et al. 2019): two borders, each followed by a branch. It
// takes an open branch and leaves one, so that residual add, bias, dropout and norm are one kernel
// across layers too. Legend: T tokens, h hidden.
#pragma once

#include "worker/model/attention_block.h"
#include "worker/model/border.h"
#include "worker/model/mlp_block.h"

namespace mt::model {

class TransformerLayer {
 public:
  // Scratch that all layers of a stage share.
  struct Buffers {
    kernels::Tensor partial;  // [T, h] open output of the running branch
    kernels::Tensor dnorm;    // [T, h] gradient of a norm's output
  };

  // layer: global number.
  TransformerLayer(const GptConfig& config, int layer);

  // `incoming`: the branch before this layer. Sets the borders; registers in the network's order.
  void Register(params::Registry* registry, const BranchEnd& incoming);
  void Bind(const params::ParamStore& store);
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan);

  // Returns the ffn branch, whose partial is buffers.partial.
  Pending Forward(const Pass& pass, size_t slot, const Pending& in, const Buffers& buffers);
  // grad: of the returned Pending, then of `in`.
  void Backward(const Pass& pass, size_t slot, const Buffers& buffers, BranchGrad* grad) const;
  // Valid after Register.
  BranchEnd end() const { return mlp_.end(); }

 private:
  Border norm1_;
  AttentionBlock attention_;
  Border norm2_;
  MlpBlock mlp_;
};

}  // namespace mt::model
