#include "worker/params/flat_layout.h"

#include <algorithm>

#include "common/base/math.h"

namespace mt::params {
namespace {

// Parameters of one region in flat order: last layer first, else as registered, so that joined ones
// stay together.
std::vector<ParamId> OrderedRegion(const Registry& registry, Region region) {
  std::vector<ParamId> ids;
  for (int32_t i = 0; i < static_cast<int32_t>(registry.size()); ++i) {
    if (registry[ParamId{i}].region == region) ids.push_back(ParamId{i});
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](ParamId a, ParamId b) { return registry[a].layer > registry[b].layer; });
  return ids;
}

}  // namespace

FlatLayout::FlatLayout(const Args& args) : dp_size_(args.dp_size) {
  CHECK(args.dp_size >= 1 && args.min_bucket_elements >= 1);
  const Registry& registry = *args.registry;
  offsets_.resize(static_cast<size_t>(registry.size()), -1);
  bucket_of_.resize(static_cast<size_t>(registry.size()), -1);
  for (int r = 0; r < kNumRegions; ++r) {
    const auto region = static_cast<Region>(r);
    for (const ParamId id : OrderedRegion(registry, region)) {
      const ParamSpec& spec = registry[id];
      if (bucket_open_ && !spec.joined) {
        const Bucket& open = buckets_.back();
        const bool full =
            region == Region::kMatrix && num_elements_ - open.begin >= args.min_bucket_elements;
        if (full || open.decay != spec.decay) CloseBucket();
      }
      Append(registry, id);
    }
    if (bucket_open_) CloseBucket();
  }
}

void FlatLayout::Append(const Registry& registry, ParamId id) {
  const ParamSpec& spec = registry[id];
  if (!bucket_open_) {
    buckets_.push_back(
        {.region = spec.region, .decay = spec.decay, .begin = num_elements_, .params = {}});
    bucket_open_ = true;
  }
  if (!spec.joined) num_elements_ = base::RoundUp(num_elements_, kOffsetAlignElements);
  offsets_[static_cast<size_t>(id)] = num_elements_;
  bucket_of_[static_cast<size_t>(id)] = num_buckets() - 1;
  buckets_.back().params.push_back(id);
  num_elements_ += spec.stored.NumElements();
}

void FlatLayout::CloseBucket() {
  Bucket& bucket = buckets_.back();
  bucket.count = base::RoundUp(num_elements_ - bucket.begin, dp_size_ * kBucketUnitElements);
  num_elements_ = bucket.begin + bucket.count;
  bucket_open_ = false;
}

Slice FlatLayout::OwnSlice(int bucket_index, int64_t dp_rank) const {
  CHECK(dp_rank >= 0 && dp_rank < dp_size_);
  const Bucket& b = bucket(bucket_index);
  const int64_t count = base::DivExact(b.count, dp_size_);
  return {.begin = b.begin + dp_rank * count, .count = count};
}

}  // namespace mt::params
