// The same ops in the same order as worker/model's forward; only attention is another, and products
// of few rows.
#include "worker/decode/decode_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "common/base/check.h"

namespace mt::decode {

using kernels::DType;
using kernels::Partials;
using kernels::Tensor;

namespace {

Tensor FirstRows(const Tensor& all, int64_t count) {
  if (!all) return {};
  Tensor out = all;
  out.shape = all.shape.rank() == 1 ? kernels::Shape{count} : kernels::Shape{count, all.shape[1]};
  return out;
}

}  // namespace

StatusOr<std::unique_ptr<DecodeModel>> DecodeModel::Make(const Args& args) {
  CHECK(args.backend->device().kind() == kernels::DeviceKind::kCpu);
  CHECK(args.config.dtype == DType::kF32 || args.config.dtype == DType::kF64);
  auto made = std::unique_ptr<DecodeModel>(new DecodeModel(args));
  memory::MemoryPlan plan;
  made->Plan(&plan);
  ASSIGN_OR_RETURN(made->memory_,
                   memory::Memory::Allocate(args.backend->device(), plan, args.memory_limit_bytes));
  made->Bind();
  return made;
}

DecodeModel::DecodeModel(const Args& args)
    : args_(args),
      weights_(args.config),
      tables_(args.config),
      layers_(static_cast<size_t>(args.config.layers)) {
  CHECK_GT(args.sequences, 0);
  CHECK_GT(args.logit_rows, 0);
}

void DecodeModel::Plan(memory::MemoryPlan* plan) {
  weights_.Plan(plan);
  tables_.Plan(plan);
  auto arena = memory::StackArena::Measuring();
  buffers_ = Take(&arena);
  buffers_block_ = plan->Reserve(memory::Kind::kActivations, arena.peak_bytes());
  auto caches = memory::StackArena::Measuring();
  TakeCaches(&caches);
  caches_block_ = plan->Reserve(memory::Kind::kActivations, caches.peak_bytes());
  workspace_block_ = plan->Reserve(memory::Kind::kWorkspace, WorkspaceBytes());
}

int64_t DecodeModel::WorkspaceBytes() const {
  return args_.backend->attention().DecodeWorkspaceBytes(AttentionArgs(layers_[0], buffers_));
}

void DecodeModel::Bind() {
  weights_.Bind(*memory_);
  tables_.Bind(*memory_, args_.backend->device(), *args_.stream);
  memory::StackArena arena(memory_->Data(buffers_block_), buffers_block_.bytes);
  buffers_ = Take(&arena);
  memory::StackArena caches(memory_->Data(caches_block_), caches_block_.bytes);
  TakeCaches(&caches);
  workspace_ = {memory_->Data(workspace_block_), workspace_block_.bytes};
  word_ = weights_.Weight("embedding.word.weight");
  position_ = weights_.Weight("embedding.position.weight");
  final_gain_ = weights_.Weight("final_norm.weight");
  final_shift_ = weights_.Weight("final_norm.bias");
  head_ = args_.config.tie_embeddings ? word_ : weights_.Weight("head.weight");
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::string name = fmt::format("layers.{}.", i);
    const char* const up = kernels::IsGated(args_.config.activation) ? "ffn.gate" : "ffn.up";
    Layer& layer = layers_[i];
    layer.gain1 = weights_.Weight(name + "norm1.weight");
    layer.shift1 = weights_.Weight(name + "norm1.bias");
    layer.qkv = weights_.Joined(name + "attention.q.weight");
    layer.qkv_bias = weights_.Joined(name + "attention.q.bias");
    layer.q_gain = weights_.Weight(name + "attention.q_norm.weight");
    layer.k_gain = weights_.Weight(name + "attention.k_norm.weight");
    layer.out = weights_.Weight(name + "attention.out.weight");
    layer.out_bias = weights_.Weight(name + "attention.out.bias");
    layer.gain2 = weights_.Weight(name + "norm2.weight");
    layer.shift2 = weights_.Weight(name + "norm2.bias");
    layer.up = weights_.Joined(name + up + ".weight");
    layer.up_bias = weights_.Joined(name + up + ".bias");
    layer.down = weights_.Weight(name + "ffn.down.weight");
    layer.down_bias = weights_.Weight(name + "ffn.down.bias");
  }
}

DecodeModel::Buffers DecodeModel::Take(memory::StackArena* arena) const {
  const model::GptConfig& c = args_.config;
  const DType accumulator = kernels::AccumulatorOf(c.dtype);
  const auto rows = [&](int64_t columns) { return arena->Take(c.dtype, {kMaxRows, columns}); };
  Buffers b;
  for (Tensor* const ints : {&b.tokens, &b.sequences, &b.positions})
    *ints = arena->Take(DType::kI32, {kMaxRows});
  for (Tensor* const hidden : {&b.residual, &b.y, &b.partial}) *hidden = rows(c.hidden);
  b.rstd = arena->Take(accumulator, {kMaxRows});
  if (c.norm == kernels::NormKind::kLayerNorm) b.mean = arena->Take(accumulator, {kMaxRows});
  b.qkv = rows((c.heads + 2 * c.kv_heads) * c.head_dim);
  b.o = rows(c.heads * c.head_dim);
  if (c.qk_norm) {
    b.qk_input = rows((c.heads + c.kv_heads) * c.head_dim);
    b.qk_rstd = arena->Take(accumulator, {kMaxRows, c.heads + c.kv_heads});
  }
  b.pre = rows(kernels::PreColumns(c.activation, c.ffn));
  b.act = rows(c.ffn);
  if (c.parallel_residual) {
    b.second = rows(c.hidden);
    b.bias_sum = arena->Take(c.dtype, {c.hidden});
  }
  b.head_rows = arena->Take(c.dtype, {args_.logit_rows, c.hidden});
  b.logits = arena->Take(c.dtype, {args_.logit_rows, c.vocab});
  return b;
}

void DecodeModel::TakeCaches(memory::StackArena* arena) {
  const model::GptConfig& c = args_.config;
  for (Layer& layer : layers_) {
    for (Tensor* const cache : {&layer.k_cache, &layer.v_cache})
      *cache = arena->Take(c.dtype, {args_.sequences, c.kv_heads, c.seq, c.head_dim});
  }
}

DecodeModel::Buffers DecodeModel::First(int64_t count) const {
  Buffers b = buffers_;
  for (Tensor* const one :
       {&b.tokens, &b.sequences, &b.positions, &b.residual, &b.y, &b.partial, &b.second, &b.mean,
        &b.rstd, &b.qkv, &b.o, &b.qk_input, &b.qk_rstd, &b.pre, &b.act}) {
    *one = FirstRows(*one, count);
  }
  return b;
}

void DecodeModel::Forward(std::span<const Row> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  CHECK(count > 0 && count <= kMaxRows) << count << " rows";
  const Buffers b = First(count);
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i].token >= 0 && rows[i].token < args_.config.vocab) << "token " << rows[i].token;
    b.tokens.Data<int32_t>()[i] = rows[i].token;
    b.sequences.Data<int32_t>()[i] = rows[i].sequence;
    b.positions.Data<int32_t>()[i] = rows[i].position;
  }
  args_.backend->embedding().Gather(*args_.stream,
                                    {.tokens = b.tokens, .table = word_, .out = b.partial});
  Open open{.partials = Partials(b.partial), .positions = position_, .first = true};
  for (const Layer& layer : layers_) {
    Norm(b, open, layer.gain1, layer.shift1);
    Attend(layer, b, b.partial);
    if (args_.config.parallel_residual) {
      FeedForward(layer, b, b.second);
      open = {
          .partials = Partials(b.partial), .bias = layer.down_bias, .other_bias = layer.out_bias};
      open.partials.tensor[1] = b.second;
      open.partials.count = 2;
      continue;
    }
    Norm(b, {.partials = Partials(b.partial), .bias = layer.out_bias}, layer.gain2, layer.shift2);
    FeedForward(layer, b, b.partial);
    open = {.partials = Partials(b.partial), .bias = layer.down_bias};
  }
  Norm(b, open, final_gain_, final_shift_);
  rows_ = count;
}

Tensor DecodeModel::Logits(std::span<const int> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  CHECK(count > 0 && count <= args_.logit_rows) << count << " rows";
  const Tensor x = buffers_.head_rows.Rows(0, count);
  for (int64_t i = 0; i < count; ++i) {
    const int row = rows[static_cast<size_t>(i)];
    CHECK(row >= 0 && row < rows_) << "row " << row << " of " << rows_;
    const Tensor from = buffers_.y.Rows(row, 1);
    std::memcpy(x.Rows(i, 1).data, from.data, static_cast<size_t>(from.Bytes()));
  }
  const Tensor logits = buffers_.logits.Rows(0, count);
  Product(x, head_, {}, logits);
  return logits;
}

void DecodeModel::CopySequence(int64_t from, int64_t to, int64_t positions) {
  const model::GptConfig& c = args_.config;
  CHECK(from >= 0 && from < args_.sequences && to >= 0 && to < args_.sequences);
  CHECK(positions >= 0 && positions <= c.seq);
  const int64_t head = c.seq * c.head_dim * SizeOf(c.dtype);
  const auto used = static_cast<size_t>(positions * c.head_dim * SizeOf(c.dtype));
  for (const Layer& layer : layers_) {
    for (const Tensor& cache : {layer.k_cache, layer.v_cache}) {
      char* const data = static_cast<char*>(cache.data);
      for (int64_t g = 0; g < c.kv_heads; ++g) {
        std::memcpy(data + (to * c.kv_heads + g) * head, data + (from * c.kv_heads + g) * head,
                    used);
      }
    }
  }
}

void DecodeModel::Norm(const Buffers& rows, const Open& open, const Tensor& gain,
                       const Tensor& shift) const {
  Tensor bias = open.bias;
  if (open.other_bias) {
    std::memcpy(rows.bias_sum.data, bias.data, static_cast<size_t>(bias.Bytes()));
    args_.backend->vector().AddTo(*args_.stream, rows.bias_sum, open.other_bias);
    bias = rows.bias_sum;
  }
  args_.backend->add_norm().AddNorm(*args_.stream,
                                    {.residual = open.first ? Tensor{} : rows.residual,
                                     .partials = open.partials,
                                     .bias = bias,
                                     .position_table = open.positions,
                                     .positions = rows.positions,
                                     .kind = args_.config.norm,
                                     .eps = args_.config.norm_eps,
                                     .one_plus = args_.config.norm_one_plus,
                                     .gain = gain,
                                     .shift = shift,
                                     .residual_out = rows.residual,
                                     .y = rows.y,
                                     .mean = rows.mean,
                                     .rstd = rows.rstd});
}

kernels::AttentionDecodeArgs DecodeModel::AttentionArgs(const Layer& layer,
                                                        const Buffers& rows) const {
  const model::GptConfig& c = args_.config;
  return {.dtype = c.dtype,
          .a = c.heads,
          .g = c.kv_heads,
          .d = c.head_dim,
          .scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim)),
          .window = c.window,
          .slopes = tables_.slopes(),
          .qkv = rows.qkv,
          .sequences = rows.sequences,
          .positions = rows.positions,
          .k_cache = layer.k_cache,
          .v_cache = layer.v_cache,
          .o = rows.o,
          .workspace = workspace_};
}

void DecodeModel::Attend(const Layer& layer, const Buffers& rows, const Tensor& partial) const {
  const model::GptConfig& c = args_.config;
  Product(rows.y, layer.qkv, layer.qkv_bias, rows.qkv);
  if (c.qk_norm || tables_.rope()) {
    args_.backend->rope().Rotate(*args_.stream, {.shape = {.a = c.heads,
                                                           .g = c.kv_heads,
                                                           .d = c.head_dim,
                                                           .table = tables_.rope(),
                                                           .positions = rows.positions,
                                                           .q_gain = layer.q_gain,
                                                           .k_gain = layer.k_gain,
                                                           .one_plus = c.norm_one_plus},
                                                 .qkv = rows.qkv,
                                                 .eps = c.norm_eps,
                                                 .input = rows.qk_input,
                                                 .rstd = rows.qk_rstd});
  }
  args_.backend->attention().Decode(*args_.stream, AttentionArgs(layer, rows));
  Product(rows.o, layer.out, {}, partial);
}

void DecodeModel::FeedForward(const Layer& layer, const Buffers& rows,
                              const Tensor& partial) const {
  Product(rows.y, layer.up, layer.up_bias, rows.pre);
  args_.backend->act().Act(*args_.stream,
                           {.kind = args_.config.activation, .pre = rows.pre, .y = rows.act});
  Product(rows.act, layer.down, {}, partial);
}

void DecodeModel::Product(const Tensor& x, const Tensor& w, const Tensor& bias,
                          const Tensor& y) const {
  const kernels::LinearForwardArgs args = {.x = x, .w = w, .bias = bias, .y = y};
  const kernels::LinearOps& linear = args_.backend->linear();
  if (x.shape[0] <= kernels::kMaxFewRows) {
    linear.ForwardFewRows(*args_.stream, args);
  } else {
    linear.Forward(*args_.stream, args);
  }
}

}  // namespace mt::decode
