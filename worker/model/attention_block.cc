// Products around the attention op, and the views of its packed operands.
#include "worker/model/attention_block.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace mt::model {
namespace {

using kernels::Tensor;

Linear::Args QkvArgs(const GptConfig& c, int layer) {
  const std::string prefix = fmt::format("layers.{}.attention.", layer);
  return {.parts = {{prefix + "q", c.heads * c.head_dim},
                    {prefix + "k", c.kv_heads * c.head_dim},
                    {prefix + "v", c.kv_heads * c.head_dim}},
          .inputs = c.hidden,
          .std = c.init_std,
          .bias = c.qkv_bias,
          .bias_place = Linear::BiasPlace::kProduct,
          .layer = layer};
}

Linear::Args OutArgs(const GptConfig& c, int layer) {
  return {.parts = {{fmt::format("layers.{}.attention.out", layer), c.hidden}},
          .inputs = c.heads * c.head_dim,
          .std = c.output_init_std(),
          .bias = c.bias,
          .bias_place = Linear::BiasPlace::kBorder,
          .layer = layer};
}

}  // namespace

AttentionBlock::AttentionBlock(const GptConfig& config, int layer)
    : config_(config),
      probabilities_(
          MakeDropoutSite(config.attention_dropout, layer, Site::kProbabilities, config.seed)),
      output_(MakeDropoutSite(config.hidden_dropout, layer, Site::kAttention, config.seed)),
      qkv_(config, QkvArgs(config, layer)),
      out_(config, OutArgs(config, layer)) {}

void AttentionBlock::Register(params::Registry* registry) {
  qkv_.Register(registry);
  out_.Register(registry);
}

void AttentionBlock::Bind(const params::ParamStore& store) {
  qkv_.Bind(store);
  out_.Bind(store);
}

void AttentionBlock::TakeKept(size_t slot, memory::StackArena* arena) {
  if (kept_.size() <= slot) kept_.resize(slot + 1);
  const int64_t tokens = config_.tokens();
  const int64_t q = config_.query_width();
  kept_[slot].qkv = arena->Take(config_.dtype, {tokens, 3 * q});
  kept_[slot].o = arena->Take(config_.dtype, {tokens, q});
  kept_[slot].lse = arena->Take(kernels::AccumulatorOf(config_.dtype),
                                {config_.micro_batch, config_.heads, config_.seq});
}

void AttentionBlock::TakeScratch(ScratchPlan* plan) {
  doutput_ = plan->arena->Take(config_.dtype, {config_.tokens(), config_.query_width()});
  dqkv_ = plan->arena->Take(config_.dtype, {config_.tokens(), 3 * config_.query_width()});
  qkv_.PlanWorkspace(plan);
  out_.PlanWorkspace(plan);
  const kernels::AttentionOps& ops = plan->pass->backend->attention();
  plan->NeedWorkspace(ops.WorkspaceBytes(ForwardArgs(*plan->pass, kept_.front())));
  plan->NeedWorkspace(ops.WorkspaceBytes(GradArgs(*plan->pass, kept_.front())));
}

void AttentionBlock::Forward(const Pass& pass, size_t slot, const Tensor& x,
                             const Tensor& partial) const {
  const Kept& kept = kept_[slot];
  qkv_.Forward(pass, x, kept.qkv);
  pass.backend->attention().Forward(*pass.stream, ForwardArgs(pass, kept));
  out_.Forward(pass, kept.o, partial);
}

void AttentionBlock::Backward(const Pass& pass, size_t slot, const Tensor& x, const Tensor& dbranch,
                              const Tensor& dx) const {
  const Kept& kept = kept_[slot];
  out_.WeightGrad(pass, dbranch, kept.o);
  out_.InputGrad(pass, dbranch, doutput_);
  pass.backend->attention().Grad(*pass.stream, GradArgs(pass, kept));
  qkv_.WeightGrad(pass, dqkv_, x);
  qkv_.InputGrad(pass, dqkv_, dx);
}

BranchEnd AttentionBlock::end() const { return {.bias = out_.border_bias(), .dropout = output_}; }

kernels::AttentionShape AttentionBlock::Shape() const {
  return {.dtype = config_.dtype,
          .s = config_.seq,
          .b = config_.micro_batch,
          .a = config_.heads,
          .g = config_.heads,
          .d = config_.head_dim,
          .scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim)),
          .causal = true};
}

kernels::AttentionDropout AttentionBlock::MakeDropout(const Pass& pass) const {
  if (!pass.training || !probabilities_.rate.active()) return {};
  return {.rate = probabilities_.rate,
          .key = probabilities_.key,
          .samples = pass.batch->samples,
          .positions = pass.batch->positions,
          .first_head = 0};
}

kernels::HeadView AttentionBlock::PartOf(const Tensor& packed, int64_t part) const {
  const int64_t q = config_.query_width();
  return {.data = static_cast<char*>(packed.data) + part * q * SizeOf(packed.dtype),
          .s_stride = config_.micro_batch * 3 * q,
          .b_stride = 3 * q,
          .head_stride = config_.head_dim};
}

kernels::HeadView AttentionBlock::Heads(const Tensor& t) const {
  const int64_t q = config_.query_width();
  return {.data = t.data,
          .s_stride = config_.micro_batch * q,
          .b_stride = q,
          .head_stride = config_.head_dim};
}

kernels::AttentionForwardArgs AttentionBlock::ForwardArgs(const Pass& pass,
                                                          const Kept& kept) const {
  return {.shape = Shape(),
          .q = PartOf(kept.qkv, 0),
          .k = PartOf(kept.qkv, 1),
          .v = PartOf(kept.qkv, 2),
          .dropout = MakeDropout(pass),
          .o = Heads(kept.o),
          .lse = kept.lse,
          .workspace = pass.workspace};
}

kernels::AttentionGradArgs AttentionBlock::GradArgs(const Pass& pass, const Kept& kept) const {
  return {.shape = Shape(),
          .q = PartOf(kept.qkv, 0),
          .k = PartOf(kept.qkv, 1),
          .v = PartOf(kept.qkv, 2),
          .dropout = MakeDropout(pass),
          .o = Heads(kept.o),
          .lse = kept.lse,
          .do_ = Heads(doutput_),
          .dq = PartOf(dqkv_, 0),
          .dk = PartOf(dqkv_, 1),
          .dv = PartOf(dqkv_, 2),
          .workspace = pass.workspace};
}

}  // namespace mt::model
