#include "worker/data/shuffle.h"

#include <bit>
#include <utility>

namespace mt::data {

uint64_t ShuffleStream::Draw(uint64_t max) {
  if (max == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(max);
  uint64_t value = 0;
  do {
    value = generator_();
    // numpy draws two words, high one first, where the bound needs more than 32 bits.
    if (max > 0xFFFFFFFFU) value = (value << 32) | generator_();
    value &= mask;
  } while (value > max);
  return value;
}

template <class T>
void ShuffleStream::ShuffleSpan(std::span<T> values) {
  for (size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[static_cast<size_t>(Draw(i))]);
  }
}

template void ShuffleStream::ShuffleSpan(std::span<int32_t>);
template void ShuffleStream::ShuffleSpan(std::span<uint32_t>);
template void ShuffleStream::ShuffleSpan(std::span<int64_t>);

}  // namespace mt::data
