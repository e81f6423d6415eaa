// Where each parameter lies in the flat buffers, and how those are cut into buckets: the unit of
// gradient reduction, of ZeRO (rank r owns slice r of every bucket) and of the optimizer. One
// layout serves weights, gradients and optimizer state alike: offsets are in elements. Source:
// Rajbhandari et al. 2020 §5 for slicing; the order and the cut are worker/params/README.md's.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/params/registry.h"

namespace mt::params {

// 128 elements: 256 bytes in the narrowest type (bf16), so that every buffer's offsets are aligned.
inline constexpr int64_t kOffsetAlignElements = 128;
inline constexpr int64_t kBucketUnitElements = 1024;    // per data-parallel rank
inline constexpr int64_t kMinBucketBytes = 64LL << 20;  // of gradients

// A contiguous run of the flat buffers, whose parameters are alike in everything that the step asks
// about: chunk, region, decay, `partial` and `copy` (ParamSpec). Elements that belong to no
// parameter (alignment, the padded end) are zero in every buffer and stay so.
struct Bucket {
  int chunk = 0;
  Region region = Region::kMatrix;
  bool decay = false;
  bool partial = false;
  bool copy = false;
  int64_t begin = 0;            // first element in the flat buffer
  int64_t count = 0;            // a multiple of dp_size * kBucketUnitElements
  std::vector<ParamId> params;  // in flat order
};

// A run of elements.
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;
};

// Immutable.
class FlatLayout {
 public:
  struct Args {
    const Registry* registry = nullptr;  // used during construction only
    int64_t dp_size = 1;
    // A matrix bucket closes at or above this; > 0. kMinBucketBytes or parallel.bucket_size, in
    // elements of gradients.
    int64_t min_bucket_elements = 0;
  };
  explicit FlatLayout(const Args& args);

  int64_t dp_size() const { return dp_size_; }
  int64_t num_elements() const { return num_elements_; }
  // In flat order: chunk 0 first; within a chunk by region, the matrices of its last layer first,
  // which is nearly the order in which the chunk's backward completes them (the word table, which
  // the head and the embedding both write, comes late).
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // In the order in which forward reads them: chunk 0 first, each chunk from its end.
  std::vector<int> ForwardOrder() const;
  int num_buckets() const { return static_cast<int>(buckets_.size()); }
  const Bucket& bucket(int index) const { return buckets_[static_cast<size_t>(index)]; }
  // First element of the parameter in the flat buffer.
  int64_t OffsetOf(ParamId id) const { return offsets_[static_cast<size_t>(id)]; }
  int BucketOf(ParamId id) const { return bucket_of_[static_cast<size_t>(id)]; }
  // Rank r's slice of a bucket, in elements of the flat buffer.
  Slice OwnSlice(int bucket_index, int64_t dp_rank) const;

 private:
  // Closes the open bucket: pads it to the unit and starts the next one behind it.
  void CloseBucket();
  // Whether the parameter may lie in the open bucket.
  bool Fits(const ParamSpec& spec) const;
  void Append(const Registry& registry, ParamId id);

  int64_t dp_size_;
  int64_t min_bucket_elements_;
  int64_t num_elements_ = 0;  // while building: the next free element
  bool bucket_open_ = false;
  std::vector<Bucket> buckets_;
  std::vector<int64_t> offsets_;
  std::vector<int> bucket_of_;
};

}  // namespace mt::params
