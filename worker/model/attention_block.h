// The attention branch of a layer: packed QKV product, norm and rotation of query and key heads,
// causal attention, output product. The output stays open (branch.h). All sizes are this rank's:
// heads are sharded over tensor ranks. Legend: T = s b tokens, h hidden, a query heads, g key/value
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
  // `layer`: global layer number.
  AttentionBlock(const GptConfig& config, int layer);

  // Adds q, k, v, with QK norm their gains, and the output projection.
  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  // Takes what a slot keeps for backward: qkv, o and the log-sum-exp; with QK norm also its input
  // and statistics.
  void TakeKept(size_t slot, memory::StackArena* arena);
  // Takes scratch and reports the workspace of every op, for training and evaluation.
  void TakeScratch(ScratchPlan* plan);

  // Forward is three calls, so that communication can run beside the products. First ColumnProduct:
  // x, rows [n, h] of the norm's output from row `first` on -> the same rows of q, k and v; every
  // row once. Then Between: rotation and attention over all rows.
  void ColumnProduct(const Pass& pass, size_t slot, const kernels::Tensor& x, int64_t first) const;
  void Between(const Pass& pass, size_t slot) const;
  // Last rows [first, first + n) of the branch's output, this rank's part of it: -> partial [n, h].
  void RowProduct(const Pass& pass, size_t slot, int64_t first,
                  const kernels::Tensor& partial) const;
  // Backward is three calls, so that communication can begin between them. First InputGrad: dbranch
  // [T, h] -> dx [T, h], and the gradients of the QK norm's gains. What ColumnWeightGrad needs
  // stays in scratch, which the next block's InputGrad overwrites.
  void InputGrad(const Pass& pass, size_t slot, const kernels::Tensor& dbranch,
                 const kernels::Tensor& dx) const;
  // The weight gradient of the output projection (row-parallel). The output bias's gradient is the
  // business of the residual norm behind the branch.
  void RowWeightGrad(const Pass& pass, size_t slot, const kernels::Tensor& dbranch) const;
  // The gradients of q, k and v (column-parallel) and of their biases; x [T, h], all rows of the
  // branch's input.
  void ColumnWeightGrad(const Pass& pass, const kernels::Tensor& x) const;
  // What the next residual norm needs to close this branch.
  BranchEnd end() const;

 private:
  struct Kept {
    kernels::Tensor qkv;       // [T, p], per token all q, all k, all v; q and k after rotation
    kernels::Tensor o;         // [T, q]
    kernels::Tensor lse;       // accumulator type [b, a, s]
    kernels::Tensor qk_input;  // [T, (a + g) d], QK norm: q and k before norm and rotation
    kernels::Tensor qk_rstd;   // accumulator type [T, a + g], QK norm
  };

  int64_t packed_width() const { return config_.query_width() + 2 * config_.key_width(); }
  // True if q and k are normalised or rotated between the product and attention.
  bool rotates() const { return config_.qk_norm || config_.position == PositionKind::kRope; }

  kernels::AttentionShape Shape(const Pass& pass) const;
  kernels::RotateShape RotationShape(const Pass& pass) const;
  kernels::RotateGradArgs RotationGradArgs(const Pass& pass, const Kept& kept) const;
  kernels::AttentionDropout MakeDropout(const Pass& pass) const;
  struct Views {
    kernels::HeadView q, k, v;
  };
  // The q, k and v parts of a packed [T, p].
  Views Unpack(const kernels::Tensor& packed) const;
  // View of the heads that begin at `column` of [T, n].
  kernels::HeadView Heads(const kernels::Tensor& t, int64_t column) const;
  kernels::AttentionForwardArgs ForwardArgs(const Pass& pass, const Kept& kept) const;
  kernels::AttentionGradArgs GradArgs(const Pass& pass, const Kept& kept) const;

  const GptConfig config_;
  const int layer_;
  const DropoutSite probabilities_, output_;
  Linear qkv_, out_;
  params::ParamId q_gain_id_ = params::ParamId::kNone;  // [d], QK norm
  params::ParamId k_gain_id_ = params::ParamId::kNone;
  kernels::Tensor q_gain_, k_gain_, dq_gain_, dk_gain_;
  std::vector<Kept> kept_;   // [slot]
  kernels::Tensor doutput_;  // scratch [T, q]
  kernels::Tensor dqkv_;     // scratch [T, p]
};

}  // namespace mt::model
