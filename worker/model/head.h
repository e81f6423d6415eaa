// The last layer of the network: final norm, logits against the word table, cross-entropy. It runs
// its own backward within the forward action, chunk by chunk of rows, since the gradient of the
// loss is a constant: so logits never outlive a chunk, and all that waits for the stage's backward
// is the gradient of the residual. Legend: T tokens, h hidden, V' padded vocabulary, C rows of a
// chunk.
#pragma once

#include <vector>

#include "kernels/ops/loss.h"
#include "worker/model/border.h"
#include "worker/model/embedding.h"
#include "worker/model/gpt_config.h"
#include "worker/model/pass.h"

namespace mt::model {

// Where a microbatch's loss goes and what its gradient is multiplied with.
struct LossArgs {
  double seed = 0;                     // constant of every token's gradient
  const double* loss_scale = nullptr;  // in StepScalars; may be null in evaluation
  kernels::Tensor sums;                // f64 [2], added to: weighted loss, weights
};

class Head {
 public:
  // `words` must outlive it. chunk_tokens: C, the last chunk may be shorter.
  Head(const GptConfig& config, const WordTable* words, int64_t chunk_tokens);

  // `incoming`: the last layer's branch.
  void Register(params::Registry* registry, const BranchEnd& incoming);
  void Bind(const params::ParamStore& store);
  // Per slot: the residual's gradient. What the final norm keeps lives only within Forward.
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan);

  // Adds to loss.sums; in training also writes the gradients of the word table (the head's share;
  // the caller reports it done) and the final norm, and dresidual(slot). dnorm [T, h]: scratch.
  void Forward(const Pass& pass, size_t slot, const Pending& in, const LossArgs& loss,
               const kernels::Tensor& dnorm);
  // [T, h]: gradient of the last residual, from Forward to the stage's backward.
  const kernels::Tensor& dresidual(size_t slot) const { return dresidual_[slot]; }

 private:
  // Rows [begin, begin + count): logits, loss, and in training the gradients.
  void Chunk(const Pass& pass, int64_t begin, int64_t count, const LossArgs& loss,
             const kernels::Tensor& dnorm) const;
  void PlanWorkspace(ScratchPlan* plan) const;

  const GptConfig config_;
  const WordTable* words_;
  const int64_t chunk_;  // C
  Border norm_;
  std::vector<kernels::Tensor> dresidual_;  // by slot
  kernels::Tensor logits_;                  // scratch [C, V']
  kernels::Tensor stats_;                   // scratch, accumulator type [C * 3]
};

}  // namespace mt::model
