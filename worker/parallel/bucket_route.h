// The way of each bucket's gradients and weights through a step, decided once, when the layout of
// parameters is known: which sums over ranks its gradients go through, whether its weights are
// gathered, which rank speaks for it. Source of the rules:
// worker/parallel/README.md#what-is-left-after-the-replicas-sum.
#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/group_axes.h"
#include "worker/params/param_store.h"

namespace mt::parallel {

// How the gradient replicas sum a bucket.
enum class Reduction : uint8_t {
  kNone,           // one replica
  kAllReduce,      // every replica needs all of the sum
  kReduceScatter,  // each needs its slice
};

struct BucketRoute {
  Reduction reduce = Reduction::kNone;
  // Then both ends of the pipeline add up what they have of their tied word table.
  bool tied = false;
  // Then the tensor ranks add up, each having computed a part of the gradient.
  bool tensor_sum = false;
  // This rank's own slice of the bucket counts in the norm and is what a checkpoint has of it. Of
  // all ranks that hold an element, one counts it.
  bool counted = false;
  // A replica updates its slice of the weights only, and obtains the others behind the update.
  bool gather = false;

  // True if the replicas' sum is the gradient.
  bool final_after_reduce() const { return !tied && !tensor_sum; }
  bool operator==(const BucketRoute&) const = default;
};

// By bucket of the store's layout. CHECKs that store and axes agree on the gradient replicas, and
// that an end of a pipeline with tied tables has exactly one word table. Pure; thread-safe. The
// store need not be bound.
std::vector<BucketRoute> RoutesOf(const params::ParamStore& store, const layout::GroupAxes& axes);

}  // namespace mt::parallel
