// The last layer of the network: final norm, logits against the word table (or a matrix of its
// own), cross-entropy. It runs its own backward within the forward action, chunk by chunk of rows,
// since the gradient of the loss is a constant: so logits never outlive a chunk, and all that waits
// for the stage's backward is the gradient of the residual. Tensor ranks have columns of the logits
// each and exchange three numbers a token (Shoeybi et al. 2019 §3). Legend: T tokens, R rows
// between matrix products, h hidden, v columns of this rank, C rows of a chunk, t tensor ranks.
#pragma once

#include <vector>

#include "kernels/ops/loss.h"
#include "worker/model/border.h"
#include "worker/model/gpt_config.h"
#include "worker/model/pass.h"
#include "worker/model/vocab_matrix.h"

namespace mt::model {

// Where a microbatch's loss goes and what its gradient is multiplied with.
struct LossArgs {
  double seed = 0;                     // constant of every token's gradient
  const double* loss_scale = nullptr;  // in StepScalars; may be null in evaluation
  kernels::Tensor sums;                // f64 [2], added to: weighted loss, weights
};

class Head {
 public:
  // Scratch that it shares with the layers.
  struct Buffers {
    kernels::Tensor x;   // [T, h], where rows are cut
    kernels::Tensor dx;  // [T, h]; may hold the open branch
  };

  // `words` must outlive it. chunk_tokens: C, the last chunk may be shorter. reports_words: nobody
  // writes the matrix' gradient after it.
  Head(const GptConfig& config, const VocabMatrix* words, int64_t chunk_tokens, bool reports_words);

  // `incoming`: the last layer's branch.
  void Register(params::Registry* registry, const BranchEnd& incoming);
  void Bind(const params::ParamStore& store);
  // Per slot: the residual's gradient. What the final norm keeps lives only within Forward.
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan);

  // Adds to loss.sums; in training also writes the gradients of the matrix (the head's share) and
  // of the final norm, and dresidual(slot).
  void Forward(const Pass& pass, size_t slot, const Pending& in, const LossArgs& loss,
               const Buffers& buffers);
  // [R, h]: gradient of the last residual, from Forward to the stage's backward.
  const kernels::Tensor& dresidual(size_t slot) const { return dresidual_[slot]; }

 private:
  // Rows [begin, begin + count) of the norm's output x and of its gradient dx, both [T, h].
  struct Rows {
    int64_t begin = 0;
    int64_t count = 0;
    kernels::Tensor x, dx;
  };

  // Logits, loss, and in training the gradients.
  void Chunk(const Pass& pass, const Rows& rows, const LossArgs& loss) const;
  // logits [C, v] -> loss and, in their place, gradients.
  void Loss(const Pass& pass, const Rows& rows, const LossArgs& loss,
            const kernels::Tensor& logits) const;
  void PlanWorkspace(ScratchPlan* plan) const;
  // Of a chunk of so many rows; `first`: it begins a microbatch.
  void PlanChunk(ScratchPlan* plan, int64_t rows, bool first) const;

  const GptConfig config_;
  const VocabMatrix* words_;
  const int64_t chunk_;  // C
  const bool reports_words_;
  Border norm_;
  std::vector<kernels::Tensor> dresidual_;  // by slot
  kernels::Tensor y_;                       // scratch [R, h]
  kernels::Tensor logits_;                  // scratch [C, v]
  kernels::Tensor stats_;                   // scratch, accumulator type [t * C * 3]
};

}  // namespace mt::model
