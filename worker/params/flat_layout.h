// Where each parameter lies in the flat buffers, and how those are cut into buckets: the unit of
// gradient reduction, of ZeRO (rank r owns slice r of every bucket) and of the optimizer. One
// layout serves weights, gradients and optimizer state alike: offsets are in elements. Slicing
// follows ZeRO (Rajbhandari et al. 2020, section 5); order and bucket rules are given in
// worker/params/README.md.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/params/registry.h"

namespace mt::params {

// Every parameter begins at a multiple of 128 elements: 256 bytes in the narrowest type (bf16), so
// that its address is 256-byte aligned in every buffer.
inline constexpr int64_t kOffsetAlignElements = 128;
inline constexpr int64_t kBucketUnitElements = 1024;    // bucket sizes: multiples of this x dp
inline constexpr int64_t kMinBucketBytes = 64LL << 20;  // default bucket size, in gradient bytes

// A contiguous range of the flat buffers. All its parameters agree in every property that the
// training step depends on: chunk, region, decay, `partial` and `copy` (see ParamSpec). Elements
// that belong to no parameter (alignment gaps, the padding at the end) are zero in every buffer and
// stay zero.
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

// A half-open range of elements, [begin, begin + count).
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;
};

// Immutable after construction, therefore thread-safe.
class FlatLayout {
 public:
  struct Args {
    const Registry* registry = nullptr;  // used during construction only
    int64_t dp_size = 1;
    // A bucket of matrices is closed once it holds at least this many elements; > 0. Derived from
    // kMinBucketBytes or parallel.bucket_size.
    int64_t min_bucket_elements = 0;
  };
  // CHECKs that dp_size and min_bucket_elements are positive.
  explicit FlatLayout(const Args& args);

  int64_t dp_size() const { return dp_size_; }
  // Length of each flat buffer, padding included.
  int64_t num_elements() const { return num_elements_; }
  // In flat order: chunk 0 first; within a chunk by region, the matrices of its last layer first,
  // which is nearly the order in which the chunk's backward completes them (the word table, which
  // the head and the embedding both write, comes late).
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Bucket indices in the order in which forward reads the weights: chunk 0 first, each chunk's
  // buckets from last to first.
  std::vector<int> ForwardOrder() const;
  int num_buckets() const { return static_cast<int>(buckets_.size()); }
  const Bucket& bucket(int index) const { return buckets_[static_cast<size_t>(index)]; }
  // Offset of the parameter's first element in the flat buffer.
  int64_t OffsetOf(ParamId id) const { return offsets_[static_cast<size_t>(id)]; }
  // Index of the bucket that holds the parameter.
  int BucketOf(ParamId id) const { return bucket_of_[static_cast<size_t>(id)]; }
  // The dp_rank-th of dp_size equal slices of a bucket, in elements of the flat buffer.
  Slice OwnSlice(int bucket_index, int64_t dp_rank) const;

 private:
  // Closes the open bucket: pads it to the unit and starts the next one behind it.
  void CloseBucket();
  // True if the parameter may be appended to the open bucket.
  bool Fits(const ParamSpec& spec) const;
  // Places the parameter behind the previous one, in a new bucket if none is open.
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
