// The first layer of the network: gathers rows of the word table. Position rows and dropout are
// left to the first ResidualNorm. Every tensor rank gathers the rows that it holds, so the output
// is a partial sum. Legend: T tokens, R rows between matrix products, h hidden, S positions.
#pragma once

#include "worker/model/branch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/pass.h"
#include "worker/model/vocab_matrix.h"
#include "worker/params/param_store.h"

namespace mt::model {

class Embedding {
 public:
  // `word_embedding` must outlive this. `zero_gradient`: nobody writes the word table's gradient
  // before Backward (the head is on another stage, or has a matrix of its own), so the first
  // microbatch must clear it.
  Embedding(const GptConfig& config, const VocabMatrix* word_embedding, bool zero_gradient);

  // Adds the position table "embedding.position.weight" [S, h] if positions are learned.
  void Register(params::Registry* registry);
  void Bind(const params::ParamStore& store);

  // Gathers the word rows into `whole` [T, h] and sums them over tensor ranks. Returns this rank's
  // rows of the sum, or its terms, [R, h] each.
  kernels::Partials Forward(const Pass& pass, const kernels::Tensor& whole) const;
  // dbranch [T, h] is the gradient of the sum of word and position rows, its gather is finished
  // here. Adds to the gradients of both tables and reports them as done. Every tensor rank sees all
  // rows, so the position table's gradient is complete on each.
  void Backward(const Pass& pass, const PendingCollective& dbranch) const;
  BranchEnd end() const;

 private:
  const GptConfig config_;
  const VocabMatrix* word_embedding_;
  const bool zero_gradient_;
  const DropoutSite dropout_;
  params::ParamId position_id_ = params::ParamId::kNone;
  kernels::Tensor dpositions_;  // accumulator type [S, h]; empty without learned positions
};

}  // namespace mt::model
