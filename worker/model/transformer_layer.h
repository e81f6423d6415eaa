// One pre-norm transformer layer (Radford et al. 2019): two residual norms, each followed by a
// branch; or, with a parallel residual (Wang & Komatsuzaki 2021), one residual norm followed by
// both branches, whose sum is one branch. A layer takes an open branch and leaves one, so that
// residual add, bias, dropout and norm are one kernel across layers, too. Tensor parallelism's
// Gather and Reduce stand between norms and branches. Legend: T rows in the branches, R rows
// between them, h hidden.
#pragma once

#include <vector>

#include "worker/model/attention_block.h"
#include "worker/model/mlp_block.h"
#include "worker/model/residual_norm.h"

namespace mt::model {

class TransformerLayer {
 public:
  // Scratch shared by all layers of a stage.
  struct Buffers {
    kernels::Tensor partial;  // [T, h] open output of the current branch
    kernels::Tensor dnorm;    // [T, h] gradient of a norm's output; may be partial's buffer
    kernels::Tensor second;   // [T, h], parallel residual: the same for the second branch
    kernels::Tensor y;        // [R, h], if norm outputs are recomputed
    kernels::Tensor x;        // [T, h], sequence parallelism: gathered norm output, if not kept
    // [T, h], sequence parallelism: gathered branch gradient. The next one is gathered into the
    // same buffer: that begins behind what was enqueued before, the last reader included.
    kernels::Tensor dbranch;
    kernels::Tensor carry;  // [R, h], if layers are recomputed: the residual they leave
  };
  // The tensors in which the layer keeps its closed residuals, [R, h].
  struct Residuals {
    kernels::Tensor before;  // the layer's input; SetInput replaces it
    kernels::Tensor middle;  // behind the attention branch; empty: taken from the arena
  };

  // `layer`: global layer number.
  TransformerLayer(const GptConfig& config, int layer);

  // Adds the parameters in the network's order and connects the branches. `incoming`: the branch
  // before this layer.
  void Register(params::Registry* registry, const BranchEnd& incoming);
  void Bind(const params::ParamStore& store);
  void TakeKept(size_t slot, memory::StackArena* arena, const Residuals& residuals);
  // Replaces the tensor of a slot's input.
  void SetInput(size_t slot, const kernels::Tensor& residual) {
    norm1_.SetResidual(slot, residual);
  }
  void TakeScratch(ScratchPlan* plan);

  // Runs the layer and returns its last branch, whose partial outputs are in the buffers.
  Pending Forward(const Pass& pass, size_t slot, const Pending& in, const Buffers& buffers) const;
  // The same without that branch's output: computes only what backward needs.
  void ForwardKept(const Pass& pass, size_t slot, const Pending& in, const Buffers& buffers) const;
  // `grad`: gradients of the returned Pending on entry, of `in` on return. `gather`: somebody reads
  // all rows of the latter, so their gather is begun.
  void Backward(const Pass& pass, size_t slot, const Buffers& buffers, bool gather,
                BranchGrad* grad) const;
  // Valid after Register.
  BranchEnd end() const;

 private:
  struct Kept {
    kernels::Tensor y1, y2;  // [R, h] outputs of the norms; empty if recomputed
    kernels::Tensor x1, x2;  // [T, h] all ranks' of these, which y1 and y2 are rows of, if kept
  };

  bool parallel() const { return config_.parallel_residual; }
  bool keeps_norms() const { return config_.recompute.mode != RecomputeMode::kSelective; }
  // From norm1's output to norm2's.
  void RunNorm2(const Pass& pass, size_t slot, const Buffers& buffers) const;
  // A branch over all rows at once; an empty `partial` computes only what backward needs.
  template <class Block>
  void RunWhole(const Pass& pass, const Block& block, size_t slot, const kernels::Tensor& x,
                const kernels::Tensor& partial) const;
  // A branch's input, gathered, and its column product; then its row product and the sum of that
  // over tensor ranks. Where products go by shards the communication runs beside them.
  template <class Block>
  void RunColumns(const Pass& pass, const Block& block, size_t slot, const Buffers& buffers) const;
  template <class Block>
  kernels::Partials RunRows(const Pass& pass, const Block& block, size_t slot,
                            const Buffers& buffers) const;
  // Where the first or the second norm leaves its output [R, h], and where all ranks' rows of that
  // are gathered [T, h].
  kernels::Tensor NormOutput(size_t slot, const Buffers& buffers, bool first) const;
  kernels::Tensor Input(size_t slot, const Buffers& buffers, bool first) const;
  // Takes what is kept of a norm's output.
  void TakeInput(memory::StackArena* arena, kernels::Tensor* y, kernels::Tensor* x) const;
  // A norm's output for backward, kept or recomputed, and the gather of all its rows [T, h].
  PendingCollective InputAgain(const Pass& pass, const ResidualNorm& norm, size_t slot,
                               const Buffers& buffers) const;
  // A branch between its InputGrad and the gradients of what comes before it.
  struct OpenBackward {
    size_t slot = 0;
    kernels::Tensor dbranch;  // [T, h]
    PendingCollective x;      // [T, h], the branch's input
    PendingCollective dx;     // [R, h], the gradient of that, summed over tensor ranks
    kernels::Tensor second;   // [T, h], parallel residual on a single rank: dx is the sum of both
    kernels::Tensor next;     // [T, h], where the gradient that comes out is gathered; or empty
  };
  // The branch's weight gradients and its norm's backward.
  template <class Block>
  void CloseBackward(const Pass& pass, const Block& block, const ResidualNorm& norm,
                     const OpenBackward& open, BranchGrad* grad) const;
  void BackwardParallel(const Pass& pass, size_t slot, const Buffers& buffers, bool gather,
                        BranchGrad* grad) const;

  const GptConfig config_;
  ResidualNorm norm1_;
  AttentionBlock attention_;
  ResidualNorm norm2_;  // unused with a parallel residual
  MlpBlock mlp_;
  std::vector<Kept> kept_;  // [slot]
};

}  // namespace mt::model
