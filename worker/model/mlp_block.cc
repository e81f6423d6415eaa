// The activation is fused into the products where the backend can do it: into the up product
// forward, into the down product's input gradient backward.
#include "worker/model/mlp_block.h"

#include <fmt/format.h>

namespace mt::model {

using kernels::Tensor;

namespace {

Linear::Args UpArgs(const GptConfig& c, int layer) {
  Linear::Args args = {.inputs = c.hidden,
                       .std = c.init_std,
                       .bias = c.bias,
                       .bias_place = Linear::BiasPlace::kGemm,
                       .act_behind = c.activation,
                       .layer = layer};
  if (kernels::IsGated(c.activation)) {
    args.parts.push_back({fmt::format("layers.{}.ffn.gate", layer), c.ffn});
  }
  args.parts.push_back({fmt::format("layers.{}.ffn.up", layer), c.ffn});
  return args;
}

Linear::Args DownArgs(const GptConfig& c, int layer) {
  return {.parts = {{fmt::format("layers.{}.ffn.down", layer), c.hidden}},
          .inputs = c.ffn,
          .std = c.output_init_std(),
          .bias = c.bias,
          .bias_place = Linear::BiasPlace::kResidualNorm,
          .act_before = c.activation,
          .layer = layer};
}

}  // namespace

MlpBlock::MlpBlock(const GptConfig& config, int layer)
    : config_(config),
      output_(MakeDropoutSite(config.hidden_dropout, layer, Site::kFfn, config.seed)),
      up_(config, UpArgs(config, layer)),
      down_(config, DownArgs(config, layer)) {}

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
  kept_[slot].pre = arena->Take(config_.dtype, {config_.tokens(), pre_columns()});
  if (keeps_act()) {
    kept_[slot].act = arena->Take(config_.dtype, {config_.tokens(), config_.local_ffn()});
  }
}

void MlpBlock::TakeScratch(ScratchPlan* plan) {
  dpre_ = plan->arena->Take(config_.dtype, {config_.tokens(), pre_columns()});
  if (!keeps_act())
    act_ = plan->arena->Take(config_.dtype, {config_.tokens(), config_.local_ffn()});
  up_.PlanWorkspace(plan);
  down_.PlanWorkspace(plan);
}

void MlpBlock::ColumnProduct(const Pass& pass, size_t slot, const Tensor& x, int64_t first) const {
  const Kept& kept = kept_[slot];
  const int64_t rows = x.shape[0];
  up_.ForwardAct(pass, x, kept.pre.Rows(first, rows),
                 (keeps_act() ? kept.act : act_).Rows(first, rows));
}

void MlpBlock::RowProduct(const Pass& pass, size_t slot, int64_t first,
                          const Tensor& partial) const {
  const Tensor& act = keeps_act() ? kept_[slot].act : act_;
  down_.Forward(pass, act.Rows(first, partial.shape[0]), partial);
}

void MlpBlock::InputGrad(const Pass& pass, size_t slot, const Tensor& dbranch,
                         const Tensor& dx) const {
  down_.InputGradAct(pass, dbranch, kept_[slot].pre, dpre_, up_.bias_grad());
  up_.InputGrad(pass, dpre_, dx);
}

void MlpBlock::RowWeightGrad(const Pass& pass, size_t slot, const Tensor& dbranch) const {
  const Kept& kept = kept_[slot];
  if (!keeps_act()) {
    pass.backend->act().Act(*pass.stream, {.kind = config_.activation, .pre = kept.pre, .y = act_});
  }
  down_.WeightGrad(pass, dbranch, keeps_act() ? kept.act : act_);
}

void MlpBlock::ColumnWeightGrad(const Pass& pass, const Tensor& x) const {
  up_.WeightGrad(pass, dpre_, x);
}

BranchEnd MlpBlock::end() const { return {.bias = down_.residual_norm_bias(), .dropout = output_}; }

}  // namespace mt::model
