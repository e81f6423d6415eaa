// The loop is arranged for speed on arrays of many millions; the numbers drawn and their order are
// numpy's.
#include "worker/data/shuffle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace mt::data {

uint64_t ShuffleStream::Draw(uint64_t max) {
  if (max == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(max);
  uint64_t value = 0;
  do {
    value = generator_();
    // numpy draws two 32-bit numbers, the high one first, if the bound needs more than 32 bits.
    if (max > 0xFFFFFFFFU) value = (value << 32) | generator_();
    value &= mask;
  } while (value > max);
  return value;
}

// The indices do not depend on the values, so a block of them is drawn before the block's swaps.
// The memory system then fetches the block's values in parallel, where swapping one by one would
// wait for one cache miss after the other.
template <class T>
void ShuffleStream::ShuffleSpan(std::span<T> values) {
  constexpr size_t kBlock = 64;
  std::array<size_t, kBlock> targets{};
  for (size_t i = values.size(); i > 1;) {
    const size_t count = std::min(kBlock, i - 1);
    for (size_t k = 0; k < count; ++k) {
      targets[k] = static_cast<size_t>(Draw(i - 1 - k));
      __builtin_prefetch(&values[targets[k]], 1);
    }
    for (size_t k = 0; k < count; ++k) std::swap(values[--i], values[targets[k]]);
  }
}

template void ShuffleStream::ShuffleSpan(std::span<int32_t>);
template void ShuffleStream::ShuffleSpan(std::span<uint32_t>);
template void ShuffleStream::ShuffleSpan(std::span<int64_t>);

}  // namespace mt::data
