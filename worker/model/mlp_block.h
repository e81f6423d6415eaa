// The feed-forward branch of a layer: up product, activation, down product. A gated activation
// (Shazeer 2020) has a gate matrix beside the up matrix: one product yields all gate columns, then
// all up columns. The output stays open (branch.h). Legend: T tokens, h hidden, f feed-forward
// columns of this rank, p = f columns before the activation, 2f with a gate.
#pragma once

#include <vector>

#include "worker/model/branch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/linear.h"
#include "worker/model/pass.h"

namespace mt::model {

class MlpBlock {
 public:
  // `layer`: global layer number.
  MlpBlock(const GptConfig& config, int layer);

  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  // Takes what a slot keeps for backward: the activation's input and, unless it is recomputed, its
  // output.
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan);

  // Forward is two products, and nothing Between them, so that communication can run beside them.
  // First ColumnProduct: x, rows [n, h] of the norm's output from row `first` on -> the same rows
  // behind the activation; every row once. RowProduct needs these rows alone: this rank's part of
  // rows [first, first + n) of the branch's output -> partial [n, h].
  void ColumnProduct(const Pass& pass, size_t slot, const kernels::Tensor& x, int64_t first) const;
  void Between(const Pass& /*pass*/, size_t /*slot*/) const {}
  void RowProduct(const Pass& pass, size_t slot, int64_t first,
                  const kernels::Tensor& partial) const;
  // Backward is three calls, so that communication can begin between them. First InputGrad: dbranch
  // [T, h] -> dx [T, h]. What ColumnWeightGrad needs stays in scratch,
  // which the next block's InputGrad overwrites.
  void InputGrad(const Pass& pass, size_t slot, const kernels::Tensor& dbranch,
                 const kernels::Tensor& dx) const;
  // The weight gradient of the down product (row-parallel). The down bias's gradient is the
  // business of the residual norm behind the branch.
  void RowWeightGrad(const Pass& pass, size_t slot, const kernels::Tensor& dbranch) const;
  // The gradients of the up product and of the gate (column-parallel) and of their biases; x
  // [T, h], all rows of the branch's input.
  void ColumnWeightGrad(const Pass& pass, const kernels::Tensor& x) const;
  // What the next residual norm needs to close this branch.
  BranchEnd end() const;

 private:
  struct Kept {
    kernels::Tensor pre;  // [T, p]
    kernels::Tensor act;  // [T, f]; empty if recomputed
  };

  bool keeps_act() const { return config_.recompute.mode != RecomputeMode::kSelective; }

  int64_t pre_columns() const {
    return kernels::PreColumns(config_.activation, config_.local_ffn());
  }

  const GptConfig config_;
  const DropoutSite output_;
  Linear up_, down_;
  std::vector<Kept> kept_;  // [slot]
  kernels::Tensor dpre_;    // scratch [T, p]
  kernels::Tensor act_;     // scratch [T, f], if the activation is recomputed
};

}  // namespace mt::model
