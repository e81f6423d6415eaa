// The last layer of the network: final norm, logits against the word table (or a matrix of its
// own), cross-entropy. The gradient of the loss is a constant, so the head runs its own backward
// within the forward action, chunk by chunk of rows: logits never outlive a chunk, and only the
// gradient of the residual waits for the stage's backward. Each tensor rank has some columns of the
// logits; ranks exchange three statistics per token (Shoeybi et al. 2019, section 3). Legend: T
// tokens, R rows between matrix products, h hidden, v columns of this rank, C rows of a chunk, t
// tensor ranks.
#pragma once

#include <vector>

#include "kernels/ops/loss.h"
#include "worker/model/gpt_config.h"
#include "worker/model/pass.h"
#include "worker/model/residual_norm.h"
#include "worker/model/vocab_matrix.h"

namespace mt::model {

// Where the loss of a microbatch is accumulated, and the factors of its gradient.
struct LossArgs {
  double seed = 0;                     // gradient of the loss, the same for every token
  const double* loss_scale = nullptr;  // in StepScalars; may be null in evaluation
  kernels::Tensor sums;                // f64 [2], accumulated: weighted loss, weights
};

class Head {
 public:
  // Scratch shared with the layers.
  struct Buffers {
    kernels::Tensor x;   // [T, h], only with sequence parallelism
    kernels::Tensor dx;  // [T, h]; on entry it may hold the open branch
  };

  // `vocab_matrix` must outlive this. `chunk_tokens`: C (> 0, CHECK); the last chunk may be
  // shorter. `reports_gradient`: nobody writes the matrix' gradient after the head, so the head
  // reports it as done.
  Head(const GptConfig& config, const VocabMatrix* vocab_matrix, int64_t chunk_tokens,
       bool reports_gradient);

  // Adds the final norm. `incoming`: the last layer's branch.
  void Register(params::Registry* registry, const BranchEnd& incoming);
  void Bind(const params::ParamStore& store);
  // Takes a slot's residual gradient. What the final norm keeps lives only within Forward.
  void TakeKept(size_t slot, memory::StackArena* arena);
  void TakeScratch(ScratchPlan* plan);

  // Computes the loss and adds it to loss.sums. In training also writes the gradients of the matrix
  // (the head's share), of the final norm, and dresidual(slot).
  void Forward(const Pass& pass, size_t slot, const Pending& in, const LossArgs& loss,
               const Buffers& buffers);
  // Gradient of the last residual [R, h], valid from Forward to the stage's backward.
  const kernels::Tensor& dresidual(size_t slot) const { return dresidual_[slot]; }

 private:
  // Rows [begin, begin + count) of the norm's output x and of its gradient dx, both [T, h].
  struct Rows {
    int64_t begin = 0;
    int64_t count = 0;
    kernels::Tensor x, dx;
  };

  // Logits and loss of one chunk, and in training the gradients; `input_done` is called in training
  // between that of x and that of the matrix.
  template <class InputDone>
  void Chunk(const Pass& pass, const Rows& rows, const LossArgs& loss,
             const InputDone& input_done) const;
  // logits [C, v] -> loss; in training the logits are overwritten with their gradients.
  void Loss(const Pass& pass, const Rows& rows, const LossArgs& loss,
            const kernels::Tensor& logits) const;
  void PlanWorkspace(ScratchPlan* plan) const;
  // Plans the workspace of a chunk of `rows` rows; `first`: it begins a microbatch.
  void PlanChunk(ScratchPlan* plan, int64_t rows, bool first) const;

  const GptConfig config_;
  const VocabMatrix* vocab_matrix_;
  const int64_t chunk_;  // C
  const bool reports_gradient_;
  ResidualNorm norm_;
  std::vector<kernels::Tensor> dresidual_;  // [slot]
  kernels::Tensor y_;                       // scratch [R, h]
  kernels::Tensor logits_;                  // scratch [C, v]
  kernels::Tensor stats_;                   // scratch, accumulator type [t * C * 3]
};

}  // namespace mt::model
