// Tells when a bucket's gradients are complete: the model reports each parameter whose gradient it
// has finished in the last microbatch's backward, in any order.
#pragma once

#include <optional>
#include <vector>

#include "worker/params/flat_layout.h"

namespace mt::params {

// One thread at a time. The layout must outlive it.
class BucketCountdown {
 public:
  // Watches the buckets of one model chunk.
  explicit BucketCountdown(const FlatLayout* layout, int chunk = 0);

  // Before the chunk's last backward of a step: nothing is done yet.
  void Reset();
  // The bucket that this parameter completes, if it does. CHECKs that it is the chunk's and that no
  // parameter is done twice.
  std::optional<int> MarkDone(ParamId id);
  // Whether every bucket of the chunk is complete.
  bool AllDone() const { return open_buckets_ == 0; }

 private:
  const FlatLayout* layout_;
  int chunk_;
  std::vector<int> remaining_;  // per bucket
  std::vector<bool> done_;      // per parameter
  int open_buckets_ = 0;
};

}  // namespace mt::params
