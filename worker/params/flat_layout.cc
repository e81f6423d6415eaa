// Builds the layout in one pass over the parameters in flat order: a parameter is appended to the
// open bucket, or closes it and opens the next one where it differs in a property or the bucket is
// full.
#include "worker/params/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/base/math.h"

namespace mt::params {
namespace {

// All parameters in flat order: sorted by chunk and region, with copies and partial ones apart,
// last layer first. The sort is stable, so joined parameters stay next to each other.
std::vector<ParamId> FlatOrder(const Registry& registry) {
  std::vector<ParamId> ids;
  ids.reserve(static_cast<size_t>(registry.size()));
  for (int32_t i = 0; i < static_cast<int32_t>(registry.size()); ++i) ids.push_back(ParamId{i});
  const auto key = [&](ParamId id) {
    const ParamSpec& spec = registry[id];
    return std::tuple(spec.chunk, spec.region, spec.copy, spec.partial, -spec.layer);
  };
  std::stable_sort(ids.begin(), ids.end(), [&](ParamId a, ParamId b) { return key(a) < key(b); });
  return ids;
}

}  // namespace

FlatLayout::FlatLayout(const Args& args)
    : dp_size_(args.dp_size), min_bucket_elements_(args.min_bucket_elements) {
  CHECK(args.dp_size >= 1 && args.min_bucket_elements >= 1);
  const Registry& registry = *args.registry;
  offsets_.resize(static_cast<size_t>(registry.size()), -1);
  bucket_of_.resize(static_cast<size_t>(registry.size()), -1);
  for (const ParamId id : FlatOrder(registry)) {
    if (bucket_open_ && !Fits(registry[id])) CloseBucket();
    Append(registry, id);
  }
  if (bucket_open_) CloseBucket();
}

bool FlatLayout::Fits(const ParamSpec& spec) const {
  if (spec.joined) return true;  // the registry has checked that joined parameters agree
  const Bucket& open = buckets_.back();
  if (open.chunk != spec.chunk || open.region != spec.region || open.decay != spec.decay ||
      open.partial != spec.partial || open.copy != spec.copy) {
    return false;
  }
  switch (spec.region) {
    case Region::kMatrix:
      return num_elements_ - open.begin < min_bucket_elements_;
    case Region::kWordEmbedding:
      return false;  // each table alone, so that both ends of a tied pair cut it alike
    case Region::kShardedVector:
    case Region::kReplicatedVector:
    case Region::kPositionTable:
      break;
  }
  return true;
}

void FlatLayout::Append(const Registry& registry, ParamId id) {
  const ParamSpec& spec = registry[id];
  if (!bucket_open_) {
    buckets_.push_back({.chunk = spec.chunk,
                        .region = spec.region,
                        .decay = spec.decay,
                        .partial = spec.partial,
                        .copy = spec.copy,
                        .begin = num_elements_,
                        .params = {}});
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

std::vector<int> FlatLayout::ForwardOrder() const {
  std::vector<int> order(buckets_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return bucket(a).chunk < bucket(b).chunk; });
  return order;
}

Slice FlatLayout::OwnSlice(int bucket_index, int64_t dp_rank) const {
  CHECK(dp_rank >= 0 && dp_rank < dp_size_);
  const Bucket& b = bucket(bucket_index);
  const int64_t count = base::DivExact(b.count, dp_size_);
  return {.begin = b.begin + dp_rank * count, .count = count};
}

}  // namespace mt::params
