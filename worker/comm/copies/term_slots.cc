// Slots by the distance from their sender: all members that send at one distance at a time write
// the same place of different members.
#include "worker/comm/copies/term_slots.h"

#include "worker/comm/reduce.h"

namespace mt::comm {

using kernels::DType;

void TermSlots::Set(std::byte* scratch, int64_t bytes) {
  scratch_ = scratch;
  bytes_ = bytes / (size_ - 1) / kAlign * kAlign;
}

// Of 16-bit types by rank from 0, of others from the next member on round to this one.
std::vector<std::byte*> TermSlots::Arrived(std::byte* own, DType dtype) const {
  std::vector<std::byte*> terms;
  terms.reserve(static_cast<size_t>(size_));
  for (int i = 0; i < size_; ++i) {
    const int member = IsHalf(dtype) ? i : (rank_ + i + 1) % size_;
    const int distance = (rank_ + size_ - member) % size_;
    terms.push_back(distance == 0 ? own : scratch_ + OffsetAt(distance));
  }
  return terms;
}

std::vector<const void*> TermSlots::Of(const void* in, int64_t shard_count, DType dtype) const {
  // Nothing is written through this pointer.
  auto* const whole = static_cast<std::byte*>(const_cast<void*>(in));
  const auto terms = Arrived(whole + rank_ * shard_count * kernels::SizeOf(dtype), dtype);
  return {terms.begin(), terms.end()};
}

}  // namespace mt::comm
