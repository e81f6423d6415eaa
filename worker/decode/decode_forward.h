// The forward of a decoder's layers over rows that lie in its buffers: the ops of worker/model in
// the same order, with attention over a cache. Legend: R rows of a call, h hidden, a query heads
// and g key/value heads of this rank, d channels of a head as stored, v rows of the word table on
// this rank, c sequences, n positions, t tensor ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/layer_split.h"
#include "kernels/ops/backend.h"
#include "worker/decode/network_part.h"
#include "worker/decode/weight_source.h"
#include "worker/model/gpt_config.h"
#include "worker/model/position_tables.h"

namespace mt::decode {

// Of one layer; empty where the variant has none.
struct DecodeLayer {
  kernels::Tensor gain1, shift1;
  kernels::Tensor qkv, qkv_bias, q_gain, k_gain, out, out_bias;
  kernels::Tensor gain2, shift2;
  kernels::Tensor up, up_bias, down, down_bias;
  kernels::Tensor k_cache, v_cache;  // [c, g, n, d]
};
// Layers that follow each other, with or without the ends of the network.
struct DecodeChunk {
  layout::ModelChunk place;
  std::vector<DecodeLayer> layers;
};
// Of all rows of a call: [max_rows, ...], of which a call uses the first R.
struct DecodeBuffers {
  kernels::Tensor tokens, sequences, positions;  // i32 [R]
  kernels::Tensor residual, y, partial, second;  // [R, h]; second: with a parallel residual
  kernels::Tensor mean, rstd;                    // accumulator type [R]
  kernels::Tensor qkv, o;                        // [R, (a + 2g) d], [R, a d]
  kernels::Tensor lse;                           // accumulator type [a, R], of long prompts
  kernels::Tensor qk_input, qk_rstd;             // [R, (a + g) d], [R, a + g], with QK norm
  kernels::Tensor pre, act;                      // [R, up's outputs], [R, ffn]
  kernels::Tensor bias_sum;                      // [h], with a parallel residual
  kernels::Tensor head_rows, logits;             // [logit_rows, h], [logit_rows, v]
  kernels::Tensor wide_logits;                   // f32 [logit_rows, v], of 16-bit ones
  kernels::Tensor all_logits;                    // [t logit_rows, v], where ranks share them
};

// What lies in front of the first layer and behind the last one; empty where other ranks have it.
struct NetworkEnds {
  kernels::Tensor word, position, final_gain, final_shift, head;
};

// Of the layer with this number.
DecodeLayer LayerOf(const WeightSource& weights, const model::GptConfig& config, int64_t number);
NetworkEnds EndsOf(const WeightSource& weights, const model::GptConfig& config);
// The buffers' first `count` rows.
DecodeBuffers FirstRows(const DecodeBuffers& all, int64_t count);

// One call's context. Pointers are not owned; made per call.
struct ForwardPass {
  const model::GptConfig* config = nullptr;
  kernels::Backend* backend = nullptr;
  kernels::Stream* stream = nullptr;
  PartExchange* exchange = nullptr;
  const model::PositionTables* tables = nullptr;
  const NetworkEnds* ends = nullptr;
  kernels::Workspace workspace;
  // Above 0: the rows are the beginning of a sequence, of which so many are the prompt's; those
  // behind repeat its last token.
  int64_t prompt_rows = 0;
  bool one_row_each = false;  // AttentionDecodeArgs::one_row_each

  // Enqueues the chunks over `rows`; where one has the head, its norm is in rows.y.
  void Run(const std::vector<DecodeChunk>& chunks, const DecodeBuffers& rows) const;
  // y = x w^T + bias.
  void Product(const kernels::Tensor& x, const kernels::Tensor& w, const kernels::Tensor& bias,
               const kernels::Tensor& y) const;
  // Attention's operands: over the caches, and among a prompt's rows.
  kernels::AttentionDecodeArgs DecodeArgs(const DecodeLayer& layer,
                                          const DecodeBuffers& rows) const;
  kernels::AttentionForwardArgs PromptArgs(const DecodeBuffers& rows) const;

 private:
  // A branch that is not yet added to the residual.
  struct Open {
    kernels::Partials partials;
    kernels::Tensor bias, other_bias;
    kernels::Tensor positions;  // of the embedding: the position table
    bool first = false;         // nothing before it
  };
  Open Enter(const DecodeChunk& chunk, const DecodeBuffers& rows) const;
  Open RunLayer(const DecodeLayer& layer, const DecodeBuffers& rows, const Open& open) const;
  void Leave(const DecodeChunk& chunk, const DecodeBuffers& rows, const Open& open) const;
  void Norm(const DecodeBuffers& rows, const Open& open, const kernels::Tensor& gain,
            const kernels::Tensor& shift) const;
  void Attend(const DecodeLayer& layer, const DecodeBuffers& rows,
              const kernels::Tensor& partial) const;
  void FeedForward(const DecodeLayer& layer, const DecodeBuffers& rows,
                   const kernels::Tensor& partial) const;
};

}  // namespace mt::decode
