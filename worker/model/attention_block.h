// The attention branch of a layer: packed QKV product, causal attention, output product. The output
// stays open (branch.h). Legend: T = s b tokens, h hidden, q = heads x head_dim.
#pragma once

#include <vector>

#include "kernels/ops/attention.h"
#include "worker/model/branch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/linear.h"
#include "worker/model/pass.h"

namespace mt::model {

class AttentionBlock {
 public:
  // layer: global number.
  AttentionBlock(const GptConfig& config, int layer);

  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  // Per slot: qkv, o and the log-sum-exp.
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan);

  // x [T, h], the norm's output -> partial [T, h].
  void Forward(const Pass& pass, size_t slot, const kernels::Tensor& x,
               const kernels::Tensor& partial) const;
  // dbranch [T, h], x as in Forward -> dx [T, h] and the gradients of the parameters but the output
  // bias.
  void Backward(const Pass& pass, size_t slot, const kernels::Tensor& x,
                const kernels::Tensor& dbranch, const kernels::Tensor& dx) const;
  BranchEnd end() const;

 private:
  struct Kept {
    kernels::Tensor qkv;  // [T, 3q]: all q, all k, all v of a token
    kernels::Tensor o;    // [T, q]
    kernels::Tensor lse;  // accumulator type [b, heads, s]
  };

  kernels::AttentionShape Shape() const;
  kernels::AttentionDropout MakeDropout(const Pass& pass) const;
  // Third `part` (0 q, 1 k, 2 v) of a packed [T, 3q].
  kernels::HeadView PartOf(const kernels::Tensor& packed, int64_t part) const;
  // All of [T, q].
  kernels::HeadView Heads(const kernels::Tensor& t) const;
  kernels::AttentionForwardArgs ForwardArgs(const Pass& pass, const Kept& kept) const;
  kernels::AttentionGradArgs GradArgs(const Pass& pass, const Kept& kept) const;

  const GptConfig config_;
  const DropoutSite probabilities_, output_;
  Linear qkv_, out_;
  std::vector<Kept> kept_;   // by slot
  kernels::Tensor doutput_;  // scratch [T, q]
  kernels::Tensor dqkv_;     // scratch [T, 3q]
};

}  // namespace mt::model
