// The same ops in the same order as worker/model's forward; only attention is another, and products
// of few rows. Between ranks the sums are those of tensor parallelism, and a chunk passes its
// closed residual on.
#include "worker/decode/decode_forward.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace mt::decode {

using kernels::Partials;
using kernels::Tensor;

namespace {

Tensor FirstRowsOf(const Tensor& all, int64_t count) {
  if (!all) return {};
  Tensor out = all;
  out.shape = all.shape.rank() == 1 ? kernels::Shape{count} : kernels::Shape{count, all.shape[1]};
  return out;
}

}  // namespace

DecodeLayer LayerOf(const WeightSource& weights, const model::GptConfig& config, int64_t number) {
  const std::string name = fmt::format("layers.{}.", number);
  const char* const up = kernels::IsGated(config.activation) ? "ffn.gate" : "ffn.up";
  DecodeLayer layer;
  layer.gain1 = weights.Weight(name + "norm1.weight");
  layer.shift1 = weights.Weight(name + "norm1.bias");
  layer.qkv = weights.Joined(name + "attention.q.weight");
  layer.qkv_bias = weights.Joined(name + "attention.q.bias");
  layer.q_gain = weights.Weight(name + "attention.q_norm.weight");
  layer.k_gain = weights.Weight(name + "attention.k_norm.weight");
  layer.out = weights.Weight(name + "attention.out.weight");
  layer.out_bias = weights.Weight(name + "attention.out.bias");
  layer.gain2 = weights.Weight(name + "norm2.weight");
  layer.shift2 = weights.Weight(name + "norm2.bias");
  layer.up = weights.Joined(name + up + ".weight");
  layer.up_bias = weights.Joined(name + up + ".bias");
  layer.down = weights.Weight(name + "ffn.down.weight");
  layer.down_bias = weights.Weight(name + "ffn.down.bias");
  return layer;
}

NetworkEnds EndsOf(const WeightSource& weights, const model::GptConfig& config) {
  NetworkEnds ends;
  ends.word = weights.Weight("embedding.word.weight");
  ends.position = weights.Weight("embedding.position.weight");
  ends.final_gain = weights.Weight("final_norm.weight");
  ends.final_shift = weights.Weight("final_norm.bias");
  ends.head = config.tie_embeddings ? ends.word : weights.Weight("head.weight");
  return ends;
}

DecodeBuffers FirstRows(const DecodeBuffers& all, int64_t count) {
  DecodeBuffers b = all;
  for (Tensor* const one :
       {&b.tokens, &b.sequences, &b.positions, &b.residual, &b.y, &b.partial, &b.second, &b.mean,
        &b.rstd, &b.qkv, &b.o, &b.qk_input, &b.qk_rstd, &b.pre, &b.act}) {
    *one = FirstRowsOf(*one, count);
  }
  return b;
}

void ForwardPass::Run(const std::vector<DecodeChunk>& chunks, const DecodeBuffers& rows) const {
  for (const DecodeChunk& chunk : chunks) {
    Open open = Enter(chunk, rows);
    for (const DecodeLayer& layer : chunk.layers) open = RunLayer(layer, rows, open);
    Leave(chunk, rows, open);
  }
}

ForwardPass::Open ForwardPass::Enter(const DecodeChunk& chunk, const DecodeBuffers& rows) const {
  if (!chunk.place.has_embedding) {
    exchange->Receive(*stream, chunk.place, rows.partial);
    return {.partials = Partials(rows.partial), .first = true};
  }
  const model::GptConfig& c = *config;
  backend->embedding().Gather(*stream, {.tokens = rows.tokens,
                                        .table = ends->word,
                                        .first_row = c.shard.rank * c.local_vocab(),
                                        .out = rows.partial});
  return {
      .partials = exchange->Sum(*stream, rows.partial), .positions = ends->position, .first = true};
}

ForwardPass::Open ForwardPass::RunLayer(const DecodeLayer& layer, const DecodeBuffers& rows,
                                        const Open& open) const {
  Norm(rows, open, layer.gain1, layer.shift1);
  Attend(layer, rows, rows.partial);
  if (config->parallel_residual) {
    FeedForward(layer, rows, rows.second);
    Open next{.bias = layer.down_bias, .other_bias = layer.out_bias};
    if (exchange->tensor_ranks() > 1) {
      // One sum over the ranks for both branches.
      backend->vector().AddTo(*stream, rows.partial, rows.second);
      next.partials = exchange->Sum(*stream, rows.partial);
    } else {
      next.partials.tensor = {rows.partial, rows.second};
      next.partials.count = 2;
    }
    return next;
  }
  Norm(rows, {.partials = exchange->Sum(*stream, rows.partial), .bias = layer.out_bias},
       layer.gain2, layer.shift2);
  FeedForward(layer, rows, rows.partial);
  return {.partials = exchange->Sum(*stream, rows.partial), .bias = layer.down_bias};
}

void ForwardPass::Leave(const DecodeChunk& chunk, const DecodeBuffers& rows,
                        const Open& open) const {
  if (chunk.place.has_head) return Norm(rows, open, ends->final_gain, ends->final_shift);
  Norm(rows, open, {}, {});
  exchange->Send(*stream, chunk.place, rows.residual);
}

// Without a gain it only closes the residual.
void ForwardPass::Norm(const DecodeBuffers& rows, const Open& open, const Tensor& gain,
                       const Tensor& shift) const {
  Tensor bias = open.bias;
  if (open.other_bias) {
    backend->device().Copy(*stream, rows.bias_sum.data, bias.data, bias.Bytes());
    backend->vector().AddTo(*stream, rows.bias_sum, open.other_bias);
    bias = rows.bias_sum;
  }
  backend->add_norm().AddNorm(*stream, {.residual = open.first ? Tensor{} : rows.residual,
                                        .partials = open.partials,
                                        .bias = bias,
                                        .position_table = open.positions,
                                        .positions = rows.positions,
                                        .kind = config->norm,
                                        .eps = config->norm_eps,
                                        .one_plus = config->norm_one_plus,
                                        .gain = gain,
                                        .shift = shift,
                                        .residual_out = rows.residual,
                                        .y = gain ? rows.y : Tensor{},
                                        .mean = gain ? rows.mean : Tensor{},
                                        .rstd = gain ? rows.rstd : Tensor{}});
}

void ForwardPass::Attend(const DecodeLayer& layer, const DecodeBuffers& rows,
                         const Tensor& partial) const {
  const model::GptConfig& c = *config;
  Product(rows.y, layer.qkv, layer.qkv_bias, rows.qkv);
  if (c.qk_norm || tables->rope()) {
    backend->rope().Rotate(*stream, {.shape = {.a = c.local_heads(),
                                               .g = c.local_kv_heads(),
                                               .d = c.stored_head(),
                                               .logical_d = c.head_dim,
                                               .table = tables->rope(),
                                               .positions = rows.positions,
                                               .q_gain = layer.q_gain,
                                               .k_gain = layer.k_gain,
                                               .one_plus = c.norm_one_plus},
                                     .qkv = rows.qkv,
                                     .eps = c.norm_eps,
                                     .input = rows.qk_input,
                                     .rstd = rows.qk_rstd});
  }
  const kernels::AttentionOps& attention = backend->attention();
  if (prompt_rows > 0) {
    // Those that repeat the last one are computed as if they followed it: theirs are others.
    attention.StoreKeys(*stream, DecodeArgs(layer, FirstRows(rows, prompt_rows)));
    attention.Forward(*stream, PromptArgs(rows));
  } else {
    attention.Decode(*stream, DecodeArgs(layer, rows));
  }
  Product(rows.o, layer.out, {}, partial);
}

void ForwardPass::FeedForward(const DecodeLayer& layer, const DecodeBuffers& rows,
                              const Tensor& partial) const {
  Product(rows.y, layer.up, layer.up_bias, rows.pre);
  backend->act().Act(*stream, {.kind = config->activation, .pre = rows.pre, .y = rows.act});
  Product(rows.act, layer.down, {}, partial);
}

void ForwardPass::Product(const Tensor& x, const Tensor& w, const Tensor& bias,
                          const Tensor& y) const {
  const kernels::LinearForwardArgs args = {
      .x = x, .w = w, .bias = bias, .y = y, .workspace = workspace};
  const kernels::LinearOps& linear = backend->linear();
  if (x.shape[0] <= kernels::kMaxFewRows) {
    linear.ForwardFewRows(*stream, args);
  } else {
    linear.Forward(*stream, args);
  }
}

kernels::AttentionDecodeArgs ForwardPass::DecodeArgs(const DecodeLayer& layer,
                                                     const DecodeBuffers& rows) const {
  const model::GptConfig& c = *config;
  return {.dtype = c.dtype,
          .a = c.local_heads(),
          .g = c.local_kv_heads(),
          .d = c.stored_head(),
          .scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim)),
          .window = c.window,
          .slopes = tables->slopes(),
          .qkv = rows.qkv,
          .sequences = rows.sequences,
          .positions = rows.positions,
          .one_row_each = one_row_each,
          .k_cache = layer.k_cache,
          .v_cache = layer.v_cache,
          .o = rows.o,
          .workspace = workspace};
}

// Rows behind the prompt's, which repeat its last token, are seen by none of the prompt's.
kernels::AttentionForwardArgs ForwardPass::PromptArgs(const DecodeBuffers& rows) const {
  const model::GptConfig& c = *config;
  const int64_t width = rows.qkv.shape[1], s = rows.qkv.shape[0];
  const auto heads = [&](const Tensor& all, int64_t first, int64_t row) {
    return kernels::HeadView{
        .data = static_cast<char*>(all.data) + first * c.stored_head() * SizeOf(c.dtype),
        .s_stride = row,
        .b_stride = row,
        .head_stride = c.stored_head()};
  };
  return {.shape = {.dtype = c.dtype,
                    .s = s,
                    .b = 1,
                    .a = c.local_heads(),
                    .g = c.local_kv_heads(),
                    .d = c.stored_head(),
                    .scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim)),
                    .window = c.window < s ? c.window : 0,
                    .slopes = tables->slopes()},
          .q = heads(rows.qkv, 0, width),
          .k = heads(rows.qkv, c.local_heads(), width),
          .v = heads(rows.qkv, c.local_heads() + c.local_kv_heads(), width),
          .o = heads(rows.o, 0, rows.o.shape[1]),
          .lse = {rows.lse.data, rows.lse.dtype, {1, c.local_heads(), s}},
          .workspace = workspace};
}

}  // namespace mt::decode
