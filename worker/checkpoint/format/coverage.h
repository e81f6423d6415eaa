// Whether boxes cover a region exactly once: near-linear in their number. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"

namespace mt::checkpoint {

// Boxes of one number of dimensions, in one piece of memory.
class BoxList {
 public:
  explicit BoxList(size_t rank) : rank_(rank) {}

  // Both of `rank` numbers.
  void Add(std::span<const int64_t> offset, std::span<const int64_t> shape) {
    numbers_.insert(numbers_.end(), offset.begin(), offset.end());
    numbers_.insert(numbers_.end(), shape.begin(), shape.end());
    ++size_;
  }
  size_t rank() const { return rank_; }
  size_t size() const { return size_; }
  std::span<const int64_t> offset(size_t i) const { return At(2 * i); }
  std::span<const int64_t> shape(size_t i) const { return At(2 * i + 1); }

 private:
  std::span<const int64_t> At(size_t i) const { return {numbers_.data() + i * rank_, rank_}; }

  size_t rank_;
  size_t size_ = 0;
  std::vector<int64_t> numbers_;
};

// OK if each element of a region of `shape`, which begins at zero and whose elements can be
// counted, lies in exactly one of the boxes, all of which lie inside it. Boxes without an element
// count for nothing. kDataLoss: two that overlap, by their places in the list, or how much is held.
Status CheckCoveredOnce(const BoxList& boxes, std::span<const int64_t> shape);

}  // namespace mt::checkpoint
