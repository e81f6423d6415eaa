// The attention branch of a layer: packed QKV product, norm and rotation of query and key heads,
// causal attention, output product. The output stays open (branch.h). All sizes are this rank's:
// tensor parallelism cuts the heads. Legend: T = s b tokens, h hidden, a query heads, g key/value
// heads, d head size as stored (channels beyond the logical one are zero), q = a d, p = (a + 2g) d.
#pragma once

#include <vector>

#include "kernels/ops/attention.h"
#include "kernels/ops/rope.h"
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
  // Per slot: qkv, o and the log-sum-exp; with QK norm its input and statistics.
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan);

  // x [T, h], the norm's output -> partial [T, h]; absent: only what backward needs.
  void Forward(const Pass& pass, size_t slot, const kernels::Tensor& x,
               const kernels::Tensor& partial) const;
  // dbranch [T, h], x as in Forward -> dx [T, h] and the gradients of the parameters but the output
  // bias.
  void Backward(const Pass& pass, size_t slot, const kernels::Tensor& x,
                const kernels::Tensor& dbranch, const kernels::Tensor& dx) const;
  BranchEnd end() const;

 private:
  struct Kept {
    kernels::Tensor qkv;       // [T, p]: all q, all k, all v of a token; q and k as attention reads
    kernels::Tensor o;         // [T, q]
    kernels::Tensor lse;       // accumulator type [b, a, s]
    kernels::Tensor qk_input;  // [T, (a + g) d], with QK norm: q and k as the product gave them
    kernels::Tensor qk_rstd;   // accumulator type [T, a + g], with QK norm
  };

  int64_t packed_width() const { return config_.query_width() + 2 * config_.key_width(); }
  // Whether q and k change between the product and attention.
  bool rotates() const { return config_.qk_norm || config_.position == PositionKind::kRope; }

  kernels::AttentionShape Shape(const Pass& pass) const;
  kernels::RotateShape RotationShape(const Pass& pass) const;
  kernels::RotateGradArgs RotationGradArgs(const Pass& pass, const Kept& kept) const;
  kernels::AttentionDropout MakeDropout(const Pass& pass) const;
  struct Views {
    kernels::HeadView q, k, v;
  };
  // The three parts of a packed [T, p].
  Views Unpack(const kernels::Tensor& packed) const;
  // Heads that begin at `column` of [T, n].
  kernels::HeadView Heads(const kernels::Tensor& t, int64_t column) const;
  kernels::AttentionForwardArgs ForwardArgs(const Pass& pass, const Kept& kept) const;
  kernels::AttentionGradArgs GradArgs(const Pass& pass, const Kept& kept) const;

  const GptConfig config_;
  const int layer_;
  const DropoutSite probabilities_, output_;
  Linear qkv_, out_;
  params::ParamId q_gain_id_ = params::ParamId::kNone;  // [d], with QK norm
  params::ParamId k_gain_id_ = params::ParamId::kNone;
  kernels::Tensor q_gain_, k_gain_, dq_gain_, dk_gain_;
  std::vector<Kept> kept_;   // by slot
  kernels::Tensor doutput_;  // scratch [T, q]
  kernels::Tensor dqkv_;     // scratch [T, p]
};

}  // namespace mt::model
