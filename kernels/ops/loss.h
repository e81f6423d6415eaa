// Cross-entropy over a (shard of a) vocabulary. Padded columns are masked: they take no part in
// max, sum or gradient, so the first loss is ln V with the unpadded V. Legend: T' rows of a chunk,
// v local columns, t shards.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

struct LossStatsArgs {
  Tensor logits;             // [T', v]
  Tensor labels;             // i32 [T'], global ids
  int64_t first_column = 0;  // global id of column 0
  int64_t real_columns = 0;  // global V without padding: columns at or above it are masked
  Tensor stats;  // accumulator type [T', 3]: max, sum of exp(x - max), logit of the label (0 if
                 // elsewhere)
};

struct LossFinishArgs {
  Tensor logits;  // [T', v]; overwritten with dlogits where write_gradient
  Tensor labels;  // i32 [T']
  int64_t first_column = 0;
  int64_t real_columns = 0;
  Tensor stats;                        // accumulator type [t, T', 3], combined in shard order
  Tensor weight;                       // f32 [T'] loss mask
  double seed = 0;                     // constant 1 / (G S)
  const double* loss_scale = nullptr;  // in StepScalars
  bool write_gradient = true;          // false: evaluation
  // f64 [2], added to: sum of weight * loss, sum of weight.
  Tensor sums;
};

class LossOps {
 public:
  virtual ~LossOps() = default;
  virtual void Stats(Stream& stream, const LossStatsArgs& args) const = 0;
  // dlogits = (softmax - onehot(label)) * weight * seed * loss_scale.
  virtual void Finish(Stream& stream, const LossFinishArgs& args) const = 0;
  // One shard (t = 1): default Stats into args.stats [1, T', 3], then Finish; backends fuse it.
  virtual void StatsFinish(Stream& stream, const LossFinishArgs& args) const;
};

}  // namespace mt::kernels
