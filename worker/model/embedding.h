// Ends of the network that share the word table: the table itself (tied: the head multiplies with
// it) and the embedding, which gathers word rows and leaves position rows and dropout to the first
// Border. Legend: T tokens, h hidden, V' padded vocabulary, S positions.
#pragma once

#include "worker/model/branch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/pass.h"
#include "worker/params/param_store.h"

namespace mt::model {

// "embedding.word.weight" [V', h]; rows at or above the vocabulary stay zero.
class WordTable {
 public:
  explicit WordTable(const GptConfig& config);

  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);

  params::ParamId id() const { return id_; }
  const kernels::Tensor& weight() const { return weight_; }
  const kernels::Tensor& grad() const { return grad_; }

 private:
  const GptConfig config_;
  params::ParamId id_ = params::ParamId::kNone;
  kernels::Tensor weight_;  // [V', h]
  kernels::Tensor grad_;    // accumulator type [V', h]
};

class Embedding {
 public:
  // `words` must outlive it. zero_words: nobody writes the table's gradient before Backward (the
  // head is on another stage), so the first microbatch clears it.
  Embedding(const GptConfig& config, const WordTable* words, bool zero_words);

  // The position table "embedding.position.weight" [S, h].
  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);

  // Writes word rows into partial [T, h].
  void Forward(const Pass& pass, const kernels::Tensor& partial) const;
  // dbranch [T, h], the gradient of the sum of word and position rows. Adds to the word table's
  // gradient; reports both tables done.
  void Backward(const Pass& pass, const kernels::Tensor& dbranch) const;
  BranchEnd end() const;

 private:
  const GptConfig config_;
  const WordTable* words_;
  const bool zero_words_;
  const DropoutSite dropout_;
  params::ParamId position_id_ = params::ParamId::kNone;
  kernels::Tensor dpositions_;  // accumulator type [S, h]
};

}  // namespace mt::model
