// The feed-forward branch of a layer: up product, activation, down product. A gated activation
// (Shazeer 2020) has a gate matrix beside the up matrix: one product gives all gate columns, then
// all up columns. The output stays open (branch.h). Legend: T tokens, h hidden, f ffn of this rank,
// p = f columns before the activation, 2f with a gate.
#pragma once

#include <vector>

#include "worker/model/branch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/linear.h"
#include "worker/model/pass.h"

namespace mt::model {

class MlpBlock {
 public:
  // layer: global number.
  MlpBlock(const GptConfig& config, int layer);

  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);
  // Per slot: the activation's input and, unless it is computed again, its output.
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan);

  // x [T, h], the norm's output -> partial [T, h]; absent: only what backward needs.
  void Forward(const Pass& pass, size_t slot, const kernels::Tensor& x,
               const kernels::Tensor& partial) const;
  // dbranch [T, h], x as in Forward -> dx [T, h] and the gradients of the parameters but the down
  // bias.
  void Backward(const Pass& pass, size_t slot, const kernels::Tensor& x,
                const kernels::Tensor& dbranch, const kernels::Tensor& dx) const;
  BranchEnd end() const;

 private:
  struct Kept {
    kernels::Tensor pre;  // [T, p]
    kernels::Tensor act;  // [T, f]; absent where it is computed again
  };

  bool keeps_act() const { return config_.recompute.mode != RecomputeMode::kSelective; }

  int64_t pre_columns() const {
    return kernels::PreColumns(config_.activation, config_.local_ffn());
  }

  const GptConfig config_;
  const DropoutSite output_;
  Linear up_, down_;
  std::vector<Kept> kept_;  // by slot
  kernels::Tensor dpre_;    // scratch [T, p]
  kernels::Tensor act_;     // scratch [T, f], where the activation is computed again
};

}  // namespace mt::model
