// A matrix with one row per token: the word table, or the head's own matrix if embeddings are not
// tied. Tensor parallelism shards the rows, padding included, so a rank may hold padding rows only.
// Legend: h hidden, V vocabulary, V' padded, v = V' / t rows of this rank.
#pragma once

#include <string>

#include "worker/model/gpt_config.h"
#include "worker/params/param_store.h"

namespace mt::model {

// Rows at or above the vocabulary are zero and stay zero.
class VocabMatrix {
 public:
  struct Args {
    std::string name;  // "embedding.word.weight"
    params::Region region = params::Region::kWordEmbedding;
    int layer = -1;     // as in ParamSpec
    bool copy = false;  // another stage owns the parameter
  };
  VocabMatrix(const GptConfig& config, Args args);

  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);

  params::ParamId id() const { return id_; }
  // The token of this rank's row 0.
  int64_t first_row() const { return config_.shard.rank * config_.local_vocab(); }
  const kernels::Tensor& weight() const { return weight_; }
  const kernels::Tensor& grad() const { return grad_; }

 private:
  const GptConfig config_;
  const Args args_;
  params::ParamId id_ = params::ParamId::kNone;
  kernels::Tensor weight_;  // [v, h]
  kernels::Tensor grad_;    // accumulator type [v, h]
};

}  // namespace mt::model
