// The numbers that a GPT needs to be built on one rank: the network's shape, its variants, and this
// rank's place among those that share each matrix. Plain values, derived and checked before
// (common/spec). Tests fill it by hand; ranks call ConfigFromJob and set the place.
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

// Which activations backward computes again (Korthikanti et al. 2022, section 5).
enum class RecomputeMode : uint8_t {
  kNone,
  kSelective,  // outputs of norms and of activations: memory-bound, cheap
  kFull,       // whole layers from their input
};
enum class RecomputeMethod : uint8_t {
  kUniform,  // every group of `layers` layers of a chunk
  kBlock,    // the first `layers` layers of each chunk, one by one
};
struct Recompute {
  RecomputeMode mode = RecomputeMode::kNone;
  RecomputeMethod method = RecomputeMethod::kUniform;  // of kFull
  int64_t layers = 1;                                  // of kFull
};

// Which of the ranks that share each matrix this is, and whether what lies between their matrix
// products (norms, dropout, residuals) is cut along the sequence: then the rank holds rows
// [rank R, (rank + 1) R) of T = s b, R = T / size (Korthikanti et al. 2022, section 4.2.2).
struct TensorShard {
  int rank = 0;
  int size = 1;
  bool sequence_parallel = false;

  bool cuts_rows() const { return sequence_parallel && size > 1; }
};

struct GptConfig {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads; fewer: grouped-query attention (Ainslie et al. 2023)
  int64_t head_dim = 0;  // any size; heads * head_dim need not be hidden
  // Channels that a head takes in weights and activations, at least head_dim; 0: head_dim. Those
  // beyond head_dim are zero and stay so, in gradients and moments too: nothing but shapes and
  // memory knows them (spec::StoredHeadDim says where it helps).
  int64_t stored_head_dim = 0;
  int64_t ffn = 0;            // of a gated activation: of each half
  int64_t vocab = 0;          // unpadded
  int64_t padded_vocab = 0;   // rows of the stored table, at least vocab
  int64_t seq = 0;            // tokens of a sample
  int64_t micro_batch = 0;    // samples of a microbatch
  int64_t max_positions = 0;  // rows of the position table, at least seq
  PositionKind position = PositionKind::kLearned;
  kernels::RopeConfig rope;  // of kRope; its head_dim is head_dim
  kernels::NormKind norm = kernels::NormKind::kLayerNorm;
  bool norm_one_plus = false;  // gains are stored as g and applied as 1 + g
  double norm_eps = 1e-5;
  kernels::ActKind activation = kernels::ActKind::kGelu;
  bool bias = true;      // of all linear layers but q, k, v
  bool qkv_bias = true;  // of q, k, v
  // RMS norm of each query and key head, before their rotation; gains over head_dim, which follow
  // norm_one_plus.
  bool qk_norm = false;
  bool tie_embeddings = true;      // the head multiplies with the word table
  bool parallel_residual = false;  // both branches read one norm of the layer's input
  int64_t window = 0;              // keys that a query sees, itself included; 0: all before it
  double hidden_dropout = 0;       // after the embedding, attention and ffn branches
  double attention_dropout = 0;    // on attention probabilities
  double init_std = 0.02;
  bool scaled_init = true;  // matrices that write to the residual: init_std / sqrt(2 layers)
  kernels::DType dtype = kernels::DType::kF32;  // of weights and activations
  int64_t seed = 1234;                          // training.seed: key of every dropout mask
  // Rows of one logits chunk; 0: 1024 on CPU slots (a chunk stays near the caches), 8192 on GPUs
  // (fewer passes over the table's gradient;
  // docs/design/gpu-engine.md#lm-head-on-the-last-stage).
  int64_t head_chunk_tokens = 0;
  Recompute recompute;
  // The same bits in every run, and with recomputed activations those of kept ones, where a faster
  // way has neither (training.deterministic). The CPU knows no other.
  bool deterministic = true;
  TensorShard shard;

  int64_t tokens() const { return seq * micro_batch; }  // T, rows of every matrix product
  // R: rows of residuals and norms on this rank.
  int64_t rows() const { return shard.cuts_rows() ? tokens() / shard.size : tokens(); }
  // What this rank holds of heads, key/value heads, ffn, the padded vocabulary and heads' channels.
  int64_t local_heads() const { return heads / shard.size; }
  int64_t local_kv_heads() const { return kv_heads / shard.size; }
  int64_t local_ffn() const { return ffn / shard.size; }
  int64_t local_vocab() const { return padded_vocab / shard.size; }
  // As stored: of q, and of k and of v.
  int64_t stored_head() const { return stored_head_dim > 0 ? stored_head_dim : head_dim; }
  int64_t query_width() const { return local_heads() * stored_head(); }
  int64_t key_width() const { return local_kv_heads() * stored_head(); }
  double output_init_std() const;  // of the matrices that write to the residual
};

// Of a completed job (spec::CompleteJob, ResolveForSlots); validation has refused what is not
// built. The shard is left alone in the world: the caller, who knows the rank, sets it.
GptConfig ConfigFromJob(const megatrain::v1::JobSpec& job);

// CHECKs that the sizes fit together.
void CheckConfig(const GptConfig& config);

}  // namespace mt::model
