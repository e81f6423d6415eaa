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
  explicit BucketCountdown(const FlatLayout* layout);

  // Before each step's last backward: nothing is done yet.
  void Reset();
  // The bucket that this parameter completes, if it does. CHECKs that no parameter is done twice.
  std::optional<int> MarkDone(ParamId id);
  // Whether every bucket is complete.
  bool AllDone() const { return open_buckets_ == 0; }

 private:
  const FlatLayout* layout_;
  std::vector<int> remaining_;  // per bucket
  std::vector<bool> done_;      // per parameter
  int open_buckets_ = 0;
};

}  // namespace mt::params
