// One counter of outstanding parameters per bucket, and one flag per parameter that catches a
// gradient which is reported twice. The counters cover the buckets of all chunks, because buckets
// are indexed globally; only those of the watched chunk are ever decremented.
#include "worker/params/bucket_countdown.h"

namespace mt::params {

BucketCountdown::BucketCountdown(const FlatLayout* layout, int chunk)
    : layout_(layout), chunk_(chunk) {
  Reset();
}

void BucketCountdown::Reset() {
  remaining_.clear();
  open_buckets_ = 0;
  size_t num_params = 0;
  for (const Bucket& bucket : layout_->buckets()) {
    remaining_.push_back(static_cast<int>(bucket.params.size()));
    num_params += bucket.params.size();
    if (bucket.chunk == chunk_) ++open_buckets_;
  }
  done_.assign(num_params, false);
}

std::optional<int> BucketCountdown::MarkDone(ParamId id) {
  const auto index = static_cast<size_t>(id);
  CHECK_LT(index, done_.size());
  CHECK(!done_[index]) << "gradient of parameter " << index << " is done twice";
  done_[index] = true;
  const int bucket = layout_->BucketOf(id);
  CHECK_EQ(layout_->bucket(bucket).chunk, chunk_) << "parameter " << index;
  if (--remaining_[static_cast<size_t>(bucket)] > 0) return std::nullopt;
  --open_buckets_;
  return bucket;
}

}  // namespace mt::params
