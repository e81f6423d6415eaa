// Two products with a GELU between them, and their gradients.
#include "worker/model/mlp_block.h"

#include <fmt/format.h>

namespace mt::model {

using kernels::Tensor;

MlpBlock::MlpBlock(const GptConfig& config, int layer)
    : config_(config),
      output_(MakeDropoutSite(config.hidden_dropout, layer, Site::kFfn, config.seed)),
      up_(config, {.parts = {fmt::format("layers.{}.ffn.up", layer)},
                   .inputs = config.hidden,
                   .part_outputs = config.ffn,
                   .std = config.init_std,
                   .bias_place = Linear::BiasPlace::kProduct,
                   .layer = layer}),
      down_(config, {.parts = {fmt::format("layers.{}.ffn.down", layer)},
                     .inputs = config.ffn,
                     .part_outputs = config.hidden,
                     .std = config.output_init_std(),
                     .bias_place = Linear::BiasPlace::kBorder,
                     .layer = layer}) {}

void MlpBlock::Register(params::Registry* registry) {
  up_.Register(registry);
  down_.Register(registry);
}

void MlpBlock::Bind(const params::ParamStore& store) {
  up_.Bind(store);
  down_.Bind(store);
}

void MlpBlock::TakeKept(size_t slot, memory::StackArena* arena) {
  if (kept_.size() <= slot) kept_.resize(slot + 1);
  kept_[slot].pre = arena->Take(config_.dtype, {config_.tokens(), config_.ffn});
  kept_[slot].act = arena->Take(config_.dtype, {config_.tokens(), config_.ffn});
}

void MlpBlock::TakeScratch(ScratchPlan* plan) {
  dpre_ = plan->arena->Take(config_.dtype, {config_.tokens(), config_.ffn});
  up_.PlanWorkspace(plan);
  down_.PlanWorkspace(plan);
}

void MlpBlock::Forward(const Pass& pass, size_t slot, const Tensor& x,
                       const Tensor& partial) const {
  const Kept& kept = kept_[slot];
  up_.ForwardAct(pass, x, kept.pre, kept.act);
  down_.Forward(pass, kept.act, partial);
}

void MlpBlock::Backward(const Pass& pass, size_t slot, const Tensor& x, const Tensor& dbranch,
                        const Tensor& dx) const {
  const Kept& kept = kept_[slot];
  down_.WeightGrad(pass, dbranch, kept.act);
  down_.InputGradAct(pass, dbranch, kept.pre, dpre_);
  up_.WeightGrad(pass, dpre_, x);
  up_.InputGrad(pass, dpre_, dx);
}

BranchEnd MlpBlock::end() const { return {.bias = down_.border_bias(), .dropout = output_}; }

}  // namespace mt::model
