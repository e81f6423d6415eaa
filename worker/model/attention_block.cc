// Calls of the products, RoPE and attention ops with views of the packed qkv tensor, so that no
// operand is copied. Backward follows the transposed order of forward.
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
          .unit = c.head_dim,
          .stored_unit = c.stored_head(),
          .std = c.init_std,
          .bias = c.qkv_bias,
          .bias_place = Linear::BiasPlace::kGemm,
          .layer = layer};
}

Linear::Args OutArgs(const GptConfig& c, int layer) {
  return {.parts = {{fmt::format("layers.{}.attention.out", layer), c.hidden}},
          .inputs = c.heads * c.head_dim,
          .unit = c.head_dim,
          .stored_unit = c.stored_head(),
          .std = c.output_init_std(),
          .bias = c.bias,
          .bias_place = Linear::BiasPlace::kResidualNorm,
          .layer = layer};
}

// Gain of the norm of all query or all key heads. Every tensor rank holds it whole and sums the
// gradient over its own heads.
params::ParamSpec GainSpec(const GptConfig& c, int layer, const char* name) {
  return {.name = fmt::format("layers.{}.attention.{}.weight", layer, name),
          .shape = {c.head_dim},
          .stored = {c.stored_head()},
          .region = params::Region::kReplicatedVector,
          .init = c.norm_one_plus ? params::InitKind::kZero : params::InitKind::kOne,
          .layer = layer,
          .partial = c.shard.size > 1};
}

}  // namespace

AttentionBlock::AttentionBlock(const GptConfig& config, int layer)
    : config_(config),
      layer_(layer),
      probabilities_(
          MakeDropoutSite(config.attention_dropout, layer, Site::kProbabilities, config.seed)),
      output_(MakeDropoutSite(config.hidden_dropout, layer, Site::kAttention, config.seed)),
      qkv_(config, QkvArgs(config, layer)),
      out_(config, OutArgs(config, layer)) {}

void AttentionBlock::Register(params::Registry* registry) {
  qkv_.Register(registry);
  if (config_.qk_norm) {
    q_gain_id_ = registry->Add(GainSpec(config_, layer_, "q_norm"));
    k_gain_id_ = registry->Add(GainSpec(config_, layer_, "k_norm"));
  }
  out_.Register(registry);
}

void AttentionBlock::Bind(const params::ParamStore& store) {
  qkv_.Bind(store);
  out_.Bind(store);
  if (!config_.qk_norm) return;
  q_gain_ = store.Weight(q_gain_id_);
  k_gain_ = store.Weight(k_gain_id_);
  dq_gain_ = store.Grad(q_gain_id_);
  dk_gain_ = store.Grad(k_gain_id_);
}

void AttentionBlock::TakeKept(size_t slot, memory::StackArena* arena) {
  if (kept_.size() <= slot) kept_.resize(slot + 1);
  Kept& kept = kept_[slot];
  const kernels::DType accumulator = kernels::AccumulatorOf(config_.dtype);
  const int64_t tokens = config_.tokens();
  kept.qkv = arena->Take(config_.dtype, {tokens, packed_width()});
  kept.o = arena->Take(config_.dtype, {tokens, config_.query_width()});
  kept.lse = arena->Take(accumulator, {config_.micro_batch, config_.local_heads(), config_.seq});
  if (!config_.qk_norm) return;
  kept.qk_input = arena->Take(config_.dtype, {tokens, config_.query_width() + config_.key_width()});
  kept.qk_rstd =
      arena->Take(accumulator, {tokens, config_.local_heads() + config_.local_kv_heads()});
}

void AttentionBlock::TakeScratch(ScratchPlan* plan) {
  doutput_ = plan->arena->Take(config_.dtype, {config_.tokens(), config_.query_width()});
  dqkv_ = plan->arena->Take(config_.dtype, {config_.tokens(), packed_width()});
  qkv_.PlanWorkspace(plan);
  out_.PlanWorkspace(plan);
  const Pass& pass = *plan->pass;
  const Kept& kept = kept_.front();
  kernels::AttentionForwardArgs forward = ForwardArgs(pass, kept);
  plan->NeedWorkspace(pass.backend->attention().Plan(forward));
  if (forward.dropout.rate.active()) {
    forward.dropout = {};  // evaluation has no dropout
    plan->NeedWorkspace(pass.backend->attention().Plan(forward));
  }
  plan->NeedWorkspace(pass.backend->attention().Plan(GradArgs(pass, kept)));
  if (!rotates()) return;
  kernels::RotateGradArgs rotation = RotationGradArgs(pass, kept);
  if (config_.qk_norm) {
    // The gains are not bound yet when the workspace is planned.
    rotation.shape.q_gain = rotation.shape.k_gain =
        Placeholder(config_.dtype, {config_.stored_head()});
  }
  plan->NeedWorkspace(pass.backend->rope().WorkspaceBytes(rotation));
}

void AttentionBlock::ColumnProduct(const Pass& pass, size_t slot, const Tensor& x,
                                   int64_t first) const {
  qkv_.Forward(pass, x, kept_[slot].qkv.Rows(first, x.shape[0]));
}

void AttentionBlock::Between(const Pass& pass, size_t slot) const {
  const Kept& kept = kept_[slot];
  if (rotates()) {
    pass.backend->rope().Rotate(*pass.stream, {.shape = RotationShape(pass),
                                               .qkv = kept.qkv,
                                               .eps = config_.norm_eps,
                                               .input = kept.qk_input,
                                               .rstd = kept.qk_rstd});
  }
  pass.backend->attention().Forward(*pass.stream, ForwardArgs(pass, kept));
}

void AttentionBlock::RowProduct(const Pass& pass, size_t slot, int64_t first,
                                const Tensor& partial) const {
  out_.Forward(pass, kept_[slot].o.Rows(first, partial.shape[0]), partial);
}

void AttentionBlock::InputGrad(const Pass& pass, size_t slot, const Tensor& dbranch,
                               const Tensor& dx) const {
  const Kept& kept = kept_[slot];
  out_.InputGrad(pass, dbranch, doutput_);
  pass.backend->attention().Grad(*pass.stream, GradArgs(pass, kept));
  if (rotates()) {
    pass.backend->rope().RotateGrad(*pass.stream, RotationGradArgs(pass, kept));
    pass.Done(q_gain_id_);
    pass.Done(k_gain_id_);
  }
  qkv_.InputGrad(pass, dqkv_, dx);
}

void AttentionBlock::RowWeightGrad(const Pass& pass, size_t slot, const Tensor& dbranch) const {
  out_.WeightGrad(pass, dbranch, kept_[slot].o);
}

void AttentionBlock::ColumnWeightGrad(const Pass& pass, const Tensor& x) const {
  qkv_.WeightGrad(pass, dqkv_, x);
}

BranchEnd AttentionBlock::end() const {
  return {.bias = out_.residual_norm_bias(), .dropout = output_};
}

kernels::AttentionShape AttentionBlock::Shape(const Pass& pass) const {
  return {.dtype = config_.dtype,
          .s = config_.seq,
          .b = config_.micro_batch,
          .a = config_.local_heads(),
          .g = config_.local_kv_heads(),
          .d = config_.stored_head(),
          .scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim)),
          .causal = true,
          .window = config_.window,
          .slopes = pass.tables->slopes()};
}

kernels::RotateShape AttentionBlock::RotationShape(const Pass& pass) const {
  return {.batch = config_.micro_batch,
          .a = config_.local_heads(),
          .g = config_.local_kv_heads(),
          .d = config_.stored_head(),
          .logical_d = config_.head_dim,
          .table = pass.tables->rope(),
          .positions = pass.batch->table_positions,
          .q_gain = q_gain_,
          .k_gain = k_gain_,
          .one_plus = config_.norm_one_plus};
}

kernels::RotateGradArgs AttentionBlock::RotationGradArgs(const Pass& pass, const Kept& kept) const {
  return {.shape = RotationShape(pass),
          .dqkv = dqkv_,
          .input = kept.qk_input,
          .rstd = kept.qk_rstd,
          .mode = pass.mode,
          .dq_gain = dq_gain_,
          .dk_gain = dk_gain_,
          .workspace = pass.workspace};
}

kernels::AttentionDropout AttentionBlock::MakeDropout(const Pass& pass) const {
  if (!pass.training || !probabilities_.rate.active()) return {};
  return {.rate = probabilities_.rate,
          .key = probabilities_.key,
          .samples = pass.batch->samples,
          .positions = pass.batch->positions,
          .first_head = static_cast<int32_t>(config_.shard.rank * config_.local_heads())};
}

AttentionBlock::Views AttentionBlock::Unpack(const Tensor& packed) const {
  const int64_t q = config_.query_width();
  return {
      .q = Heads(packed, 0), .k = Heads(packed, q), .v = Heads(packed, q + config_.key_width())};
}

kernels::HeadView AttentionBlock::Heads(const Tensor& t, int64_t column) const {
  const int64_t row = t.shape[1];
  return {.data = static_cast<char*>(t.data) + column * SizeOf(t.dtype),
          .s_stride = config_.micro_batch * row,
          .b_stride = row,
          .head_stride = config_.stored_head()};
}

kernels::AttentionForwardArgs AttentionBlock::ForwardArgs(const Pass& pass,
                                                          const Kept& kept) const {
  const Views in = Unpack(kept.qkv);
  return {.shape = Shape(pass),
          .q = in.q,
          .k = in.k,
          .v = in.v,
          .dropout = MakeDropout(pass),
          .o = Heads(kept.o, 0),
          .lse = kept.lse,
          .workspace = pass.workspace};
}

kernels::AttentionGradArgs AttentionBlock::GradArgs(const Pass& pass, const Kept& kept) const {
  const Views in = Unpack(kept.qkv);
  const Views grad = Unpack(dqkv_);
  return {.shape = Shape(pass),
          .q = in.q,
          .k = in.k,
          .v = in.v,
          .dropout = MakeDropout(pass),
          .o = Heads(kept.o, 0),
          .lse = kept.lse,
          .do_ = Heads(doutput_, 0),
          .dq = grad.q,
          .dk = grad.k,
          .dv = grad.v,
          .deterministic = config_.deterministic,
          .workspace = pass.workspace};
}

}  // namespace mt::model
