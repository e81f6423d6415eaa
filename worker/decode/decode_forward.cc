// The same ops in the same order as worker/model's forward; only attention is another, and products
// of few rows. Between ranks the sums are those of tensor parallelism, and a chunk passes its
// closed residual on.
#include "worker/decode/decode_model.h"

namespace mt::decode {

using kernels::Partials;
using kernels::Tensor;

void DecodeModel::Compute(int64_t count) {
  const Buffers b = First(count);
  for (const Chunk& chunk : chunks_) {
    Open open = Enter(chunk, b);
    for (const Layer& layer : chunk.layers) open = RunLayer(layer, b, open);
    Leave(chunk, b, open);
  }
}

DecodeModel::Open DecodeModel::Enter(const Chunk& chunk, const Buffers& rows) {
  if (!chunk.place.has_embedding) {
    exchange_.Receive(*args_.stream, chunk.place, rows.partial);
    return {.partials = Partials(rows.partial), .first = true};
  }
  const model::GptConfig& c = args_.config;
  args_.backend->embedding().Gather(*args_.stream, {.tokens = rows.tokens,
                                                    .table = word_,
                                                    .first_row = c.shard.rank * c.local_vocab(),
                                                    .out = rows.partial});
  return {.partials = exchange_.Sum(*args_.stream, rows.partial),
          .positions = position_,
          .first = true};
}

DecodeModel::Open DecodeModel::RunLayer(const Layer& layer, const Buffers& rows, const Open& open) {
  Norm(rows, open, layer.gain1, layer.shift1);
  Attend(layer, rows, rows.partial);
  if (args_.config.parallel_residual) {
    FeedForward(layer, rows, rows.second);
    Open next{.bias = layer.down_bias, .other_bias = layer.out_bias};
    if (exchange_.tensor_ranks() > 1) {
      // One sum over the ranks for both branches.
      args_.backend->vector().AddTo(*args_.stream, rows.partial, rows.second);
      next.partials = exchange_.Sum(*args_.stream, rows.partial);
    } else {
      next.partials.tensor = {rows.partial, rows.second};
      next.partials.count = 2;
    }
    return next;
  }
  Norm(rows, {.partials = exchange_.Sum(*args_.stream, rows.partial), .bias = layer.out_bias},
       layer.gain2, layer.shift2);
  FeedForward(layer, rows, rows.partial);
  return {.partials = exchange_.Sum(*args_.stream, rows.partial), .bias = layer.down_bias};
}

void DecodeModel::Leave(const Chunk& chunk, const Buffers& rows, const Open& open) {
  Norm(rows, open, final_gain_, final_shift_);
  if (!chunk.place.has_head) exchange_.Send(*args_.stream, chunk.place, rows.residual);
}

// Without a gain it only closes the residual.
void DecodeModel::Norm(const Buffers& rows, const Open& open, const Tensor& gain,
                       const Tensor& shift) const {
  Tensor bias = open.bias;
  if (open.other_bias) {
    args_.backend->device().Copy(*args_.stream, rows.bias_sum.data, bias.data, bias.Bytes());
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
                                     .y = gain ? rows.y : Tensor{},
                                     .mean = gain ? rows.mean : Tensor{},
                                     .rstd = gain ? rows.rstd : Tensor{}});
}

void DecodeModel::Attend(const Layer& layer, const Buffers& rows, const Tensor& partial) const {
  const model::GptConfig& c = args_.config;
  Product(rows.y, layer.qkv, layer.qkv_bias, rows.qkv);
  if (c.qk_norm || tables_.rope()) {
    args_.backend->rope().Rotate(*args_.stream, {.shape = {.a = c.local_heads(),
                                                           .g = c.local_kv_heads(),
                                                           .d = c.stored_head(),
                                                           .logical_d = c.head_dim,
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
  const kernels::AttentionOps& attention = args_.backend->attention();
  if (long_prompt_) {
    // Those that repeat the last one are computed as if they followed it: theirs are others.
    attention.StoreKeys(*args_.stream, AttentionArgs(layer, First(rows_)));
    attention.Forward(*args_.stream, PromptArgs(rows));
  } else {
    attention.Decode(*args_.stream, AttentionArgs(layer, rows));
  }
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
  const kernels::LinearForwardArgs args = {
      .x = x, .w = w, .bias = bias, .y = y, .workspace = workspace_};
  const kernels::LinearOps& linear = args_.backend->linear();
  if (x.shape[0] <= kernels::kMaxFewRows) {
    linear.ForwardFewRows(*args_.stream, args);
  } else {
    linear.Forward(*args_.stream, args);
  }
}

}  // namespace mt::decode
