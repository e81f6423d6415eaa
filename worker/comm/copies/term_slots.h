// The scratch memory of a group over copies, in which the peers' terms of a sum arrive: a slot for
// each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/comm/sum_terms.h"

namespace mt::comm {

class TermSlots final : public SumTerms {
 public:
  // Of the member `rank` of `size`.
  TermSlots(int rank, int size) : rank_(rank), size_(size) {}

  // Slots begin at multiples of so many bytes.
  static constexpr int64_t kAlign = 256;

  // Takes the member's own scratch; none before, and of 0 bytes none after.
  void Set(std::byte* scratch, int64_t bytes);
  // Of one slot.
  int64_t bytes() const { return bytes_; }
  // Where the parcel of the member that comes `distance` before another lies in that one's scratch.
  int64_t OffsetAt(int distance) const { return (distance - 1) * bytes_; }
  // The terms of this member's sum, of which `own` is its own, in the order of reduce.h.
  std::vector<std::byte*> Arrived(std::byte* own, kernels::DType dtype) const;

  bool Fit(int64_t bytes) const override { return bytes_ > 0 && bytes <= bytes_ * size_; }
  std::vector<const void*> Of(const void* in, int64_t shard_count,
                              kernels::DType dtype) const override;

 private:
  const int rank_, size_;
  std::byte* scratch_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace mt::comm
