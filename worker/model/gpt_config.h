// The numbers that a GPT needs to be built: plain values, derived and checked before (common/spec).
// Tests fill it by hand; ranks call ConfigFromJob.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::model {

struct GptConfig {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;  // any size; heads * head_dim need not be hidden
  int64_t ffn = 0;
  int64_t vocab = 0;          // unpadded
  int64_t padded_vocab = 0;   // rows of the stored table, at least vocab
  int64_t seq = 0;            // tokens of a sample
  int64_t micro_batch = 0;    // samples of a microbatch
  int64_t max_positions = 0;  // rows of the position table, at least seq
  double norm_eps = 1e-5;
  double hidden_dropout = 0;     // after the embedding, attention and ffn branches
  double attention_dropout = 0;  // on attention probabilities
  double init_std = 0.02;
  bool scaled_init = true;  // matrices that write to the residual: init_std / sqrt(2 layers)
  kernels::DType dtype = kernels::DType::kF32;  // of weights and activations
  int64_t seed = 1234;                          // training.seed: key of every dropout mask
  // Rows of one logits chunk; 0: 1024 on CPU slots (a chunk stays near the caches), 8192 on GPUs
  // (fewer passes over the table's gradient; gpu-engine "LM head on the last stage").
  int64_t head_chunk_tokens = 0;

  int64_t tokens() const { return seq * micro_batch; }          // T, rows of every activation
  int64_t attention_width() const { return heads * head_dim; }  // q
  double output_init_std() const;  // of the matrices that write to the residual
};

// Of a completed job (spec::CompleteJob, ResolveForSlots). CHECKs that the job asks for what is
// built: validation refuses the rest before any rank starts.
GptConfig ConfigFromJob(const megatrain::v1::JobSpec& job);

// CHECKs that the sizes fit together.
void CheckConfig(const GptConfig& config);

}  // namespace mt::model
