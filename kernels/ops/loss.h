// Cross-entropy loss and its gradient over a vocabulary that may be sharded by columns (Megatron:
// vocab_parallel_cross_entropy). The caller gathers the shards' statistics between Stats and
// Finish. Padding columns are masked: they take no part in maximum, sum or gradient, so the loss of
// the first step is about ln V with the unpadded V.
// Legend: T' rows of a chunk of tokens, v local columns, t shards, G global batch size, S sequence
// length, V vocabulary size.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

// Per-row statistics of one shard.
struct LossStatsArgs {
  Tensor logits;             // [T', v]
  Tensor labels;             // i32 [T'], global ids
  int64_t first_column = 0;  // global id of column 0
  // Global V without padding; columns with global ids at or above it are masked.
  int64_t real_columns = 0;
  // Accumulator type [T', 3], written: maximum, sum of exp(x - maximum), logit of the label (0 if
  // another shard has it). A shard of padding columns alone gives (-infinity, 0, 0).
  Tensor stats;
};

// Loss sums and, optionally, the gradient of the logits in place, from the statistics of all
// shards:
//   loss    = log(sum) + max - logit of the label
//   dlogits = (softmax - onehot(label)) * weight * seed * loss_scale
// A row of weight 0 adds nothing to the sums and gets a zero gradient, even if its logits are not
// finite.
struct LossFinishArgs {
  Tensor logits;  // [T', v]; overwritten with dlogits if write_gradient
  Tensor labels;  // i32 [T']
  int64_t first_column = 0;
  int64_t real_columns = 0;
  Tensor stats;                        // accumulator type [t, T', 3]; combined in shard order
  Tensor weight;                       // f32 [T'], the loss mask
  double seed = 0;                     // 1 / (G * S), a constant of the run
  const double* loss_scale = nullptr;  // in the StepScalars block; null: 1
  bool write_gradient = true;          // false for evaluation: the logits stay
  // f64 [2], added to: sum of weight * loss (nats), sum of weight.
  Tensor sums;
};

// Every call enqueues work on `stream` and returns; it aborts (CHECK) on inconsistent shapes. Loss
// sums are added in an order that depends on the shape alone.
class LossOps {
 public:
  virtual ~LossOps() = default;
  virtual void Stats(Stream& stream, const LossStatsArgs& args) const = 0;
  // Combines the shards; see LossFinishArgs.
  virtual void Finish(Stream& stream, const LossFinishArgs& args) const = 0;
  // Both at once for an unsharded vocabulary (t = 1). Default: Stats into args.stats [1, T', 3],
  // then Finish; backends fuse the two.
  virtual void StatsFinish(Stream& stream, const LossFinishArgs& args) const;
};

}  // namespace mt::kernels
