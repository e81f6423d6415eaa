// Detects when all gradients of a bucket are final, so that its reduction can start while backward
// still runs. The model reports each parameter once, in any order, after the last write to its
// gradient in the last microbatch of a step.
#pragma once

#include <optional>
#include <vector>

#include "worker/params/flat_layout.h"

namespace mt::params {

// Not thread-safe. The layout must outlive it.
class BucketCountdown {
 public:
  // Watches the buckets of one model chunk.
  explicit BucketCountdown(const FlatLayout* layout, int chunk = 0);

  // Marks every parameter as outstanding. Called before the chunk's last microbatch of a step.
  void Reset();
  // Records that the gradient of `id` is final. Returns the index of its bucket if this was the
  // bucket's last outstanding parameter, else nullopt. CHECKs that the parameter belongs to the
  // chunk and is reported only once.
  std::optional<int> MarkDone(ParamId id);
  // True when every bucket of the chunk is complete.
  bool AllDone() const { return open_buckets_ == 0; }

 private:
  const FlatLayout* layout_;
  int chunk_;
  std::vector<int> remaining_;  // outstanding parameters, per bucket
  std::vector<bool> done_;      // gradient reported, per parameter
  int open_buckets_ = 0;
};

}  // namespace mt::params
