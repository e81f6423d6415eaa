// A bucket's parameters agree in every property that is asked here (worker/params/flat_layout.h).
#include "worker/parallel/bucket_route.h"

#include <algorithm>

#include "common/base/check.h"

namespace mt::parallel {
namespace {

using params::Bucket;
using params::Region;

// True if every tensor rank holds all of the bucket.
bool IsReplicated(const Bucket& bucket) {
  return bucket.region == Region::kReplicatedVector || bucket.region == Region::kPositionTable;
}

Reduction ReductionOf(const params::ParamStore& store) {
  if (store.layout().dp_size() == 1) return Reduction::kNone;
  return store.state_is_cut() ? Reduction::kReduceScatter : Reduction::kAllReduce;
}

}  // namespace

std::vector<BucketRoute> RoutesOf(const params::ParamStore& store, const layout::GroupAxes& axes) {
  CHECK_EQ(store.layout().dp_size(), axes.SizeOf(layout::kGradientAxes));
  CHECK_EQ(store.share().dp_rank, axes.IndexIn(layout::kGradientAxes));
  std::vector<BucketRoute> routes;
  routes.reserve(store.layout().buckets().size());
  for (const Bucket& bucket : store.layout().buckets()) {
    const bool word_table = bucket.region == Region::kWordEmbedding;
    routes.push_back(
        {.reduce = ReductionOf(store),
         .tied = word_table && axes.holds_tied_table(),
         .tensor_sum = bucket.partial,
         .counted = !bucket.copy && (!IsReplicated(bucket) || axes.leads_tensor_ranks()),
         .gather = store.state_is_cut()});
  }
  CHECK_EQ(std::ranges::count_if(routes, &BucketRoute::tied), axes.holds_tied_table() ? 1 : 0)
      << "word tables at an end of the model";
  return routes;
}

}  // namespace mt::parallel
