// The parameters from which a GPT is built on one rank: the network's shape, its variants, and this
// rank's position in its tensor group. Plain values, derived and validated beforehand
// (common/spec). Ranks call ConfigFromJob and set the shard; tests fill in the fields themselves.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/ops/act.h"
#include "kernels/ops/add_norm.h"
#include "kernels/ops/rope.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::model {

enum class PositionKind : uint8_t { kLearned, kRope, kAlibi, kNone };

// Which activations backward recomputes (Korthikanti et al. 2022, section 5).
enum class RecomputeMode : uint8_t {
  kNone,
  kSelective,  // outputs of norms and activations, which are cheap
  kFull,       // whole layers, from their input
};
enum class RecomputeMethod : uint8_t {
  kUniform,  // all layers, in groups of `layers` of a chunk
  kBlock,    // the first `layers` layers of each chunk, one by one
};
struct Recompute {
  RecomputeMode mode = RecomputeMode::kNone;
  RecomputeMethod method = RecomputeMethod::kUniform;  // for kFull
  int64_t layers = 1;                                  // for kFull
};

// This rank's position in its tensor group, and whether sequence parallelism shards what lies
// between matrix products (norms, dropout, residuals) along the sequence. If it does, the rank
// holds rows [rank R, (rank + 1) R) of T = s b, R = T / size (Korthikanti et al. 2022, section
// 4.2.2).
struct TensorShard {
  int rank = 0;
  int size = 1;
  bool sequence_parallel = false;

  bool cuts_rows() const { return sequence_parallel && size > 1; }
};

// Under sequence parallelism the products of forward next to a gather or a sum may be computed
// shard by shard of their rows, R at a time, this rank's own first behind a gather and last before
// a sum: it needs nobody else's rows for the one, and nobody waits for it in the other, so what
// moves the rest runs beside them. A choice of speed, which the engine makes
// (docs/design/gpu-engine.md, "Beside products"). Products of other rows may differ in their last
// bits.
enum class ShardProducts : uint8_t {
  kNever,
  kBeside,  // where the collective can run beside them
  kAlways,  // the same bits, too, where it cannot
};

struct GptConfig {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads; fewer: grouped-query attention (Ainslie et al. 2023)
  int64_t head_dim = 0;  // any size; heads * head_dim need not be hidden
  // Channels that a head occupies in weights and activations, >= head_dim; 0: head_dim. Those
  // beyond head_dim are zero and stay zero, also in gradients and moments; only shapes and memory
  // depend on them (spec::StoredHeadDim says when this helps).
  int64_t stored_head_dim = 0;
  int64_t ffn = 0;            // feed-forward size; gated: of each half
  int64_t vocab = 0;          // unpadded
  int64_t padded_vocab = 0;   // rows of the stored table, >= vocab
  int64_t seq = 0;            // tokens per sample
  int64_t micro_batch = 0;    // samples per microbatch
  int64_t max_positions = 0;  // rows of the position table, >= seq
  PositionKind position = PositionKind::kLearned;
  // Learned positions and rotations are those of the microbatch, where they restart at documents
  // (data.reset_positions); on stages that use positions. Masks of dropout count through the
  // sample.
  bool reset_positions = false;
  kernels::RopeConfig rope;  // for kRope; its head_dim equals head_dim
  kernels::NormKind norm = kernels::NormKind::kLayerNorm;
  bool norm_one_plus = false;  // gains are stored as g and applied as 1 + g
  double norm_eps = 1e-5;
  kernels::ActKind activation = kernels::ActKind::kGelu;
  bool bias = true;      // all linear layers except q, k, v
  bool qkv_bias = true;  // q, k, v
  // RMSNorm of each query and key head before rotation. The gains have head_dim elements and follow
  // norm_one_plus.
  bool qk_norm = false;
  bool tie_embeddings = true;      // the head uses the word table
  bool parallel_residual = false;  // both branches read the same norm of the layer's input
  int64_t window = 0;              // keys visible to a query, itself included; 0: no limit
  double hidden_dropout = 0;       // embedding, attention and feed-forward branches
  double attention_dropout = 0;    // attention probabilities
  double init_std = 0.02;
  bool scaled_init = true;  // matrices that write to the residual: init_std / sqrt(2 layers)
  kernels::DType dtype = kernels::DType::kF32;  // weights and activations
  int64_t seed = 1234;                          // training.seed, which keys dropout masks
  // Rows of one chunk of logits; 0: 1024 on CPU slots, where a chunk stays near the caches, and at
  // least 8192 on GPUs, where fewer passes over the table's gradient matter
  // (docs/design/gpu-engine.md#lm-head-on-the-last-stage).
  int64_t head_chunk_tokens = 0;
  Recompute recompute;
  // Under sequence parallelism forward keeps the gathered inputs of branches [T, h] in place of the
  // rank's rows of them, and backward does not gather them again: a choice of memory, which the
  // engine makes (EnginePlan::WithInputsKept). All tensor ranks make the same.
  bool keep_inputs = false;
  // training.deterministic: equal bits in every run, and recomputed activations bit-equal to kept
  // ones, at the cost of speed. The CPU backend is always deterministic.
  bool deterministic = true;
  ShardProducts shard_products = ShardProducts::kNever;
  TensorShard shard;

  int64_t tokens() const { return seq * micro_batch; }  // T: rows of matrix products
  // R: rows of residuals and norms on this rank.
  int64_t rows() const { return shard.cuts_rows() ? tokens() / shard.size : tokens(); }
  // Whether the inputs of branches are gathered and can be kept: they are not recomputed.
  bool can_keep_inputs() const {
    return shard.cuts_rows() && recompute.mode != RecomputeMode::kSelective;
  }
  bool keeps_inputs() const { return keep_inputs && can_keep_inputs(); }
  // Whether a product next to a collective goes by shards, if that can run beside it or cannot. A
  // parallel residual's two branches share one gather and one sum, which have no room for it.
  bool shards_products(bool beside) const {
    if (!shard.cuts_rows() || parallel_residual) return false;
    return shard_products == ShardProducts::kAlways ||
           (beside && shard_products == ShardProducts::kBeside);
  }
  // Whether the microbatch holds its positions by value, for the gradient of their table.
  bool sorts_positions() const { return reset_positions && position == PositionKind::kLearned; }
  // This rank's share of heads, key/value heads, feed-forward columns and padded vocabulary.
  int64_t local_heads() const { return heads / shard.size; }
  int64_t local_kv_heads() const { return kv_heads / shard.size; }
  int64_t local_ffn() const { return ffn / shard.size; }
  int64_t local_vocab() const { return padded_vocab / shard.size; }
  // Stored channels of a head, and columns of q and of k (or v) on this rank.
  int64_t stored_head() const { return stored_head_dim > 0 ? stored_head_dim : head_dim; }
  int64_t query_width() const { return local_heads() * stored_head(); }
  int64_t key_width() const { return local_kv_heads() * stored_head(); }
  double output_init_std() const;  // for matrices that write to the residual
};

// The config of a completed job (spec::CompleteJob, ResolveForSlots). CHECKs that validation has
// refused what is not built. The shard stays that of a single rank: the caller sets it.
GptConfig ConfigFromJob(const megatrain::v1::JobSpec& job);

// CHECKs that all sizes are positive and divide as the layout requires.
void CheckConfig(const GptConfig& config);

}  // namespace mt::model
