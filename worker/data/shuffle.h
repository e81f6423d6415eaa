// Shuffles exactly as numpy's legacy RandomState(seed).shuffle, so that sample orders equal
// Megatron's: MT19937 seeded with init_genrand, Fisher-Yates from the end, indices drawn by masked
// rejection (numpy/random/mtrand.pyx, random_interval).
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace mt::data {

// One stream of random numbers, which successive shuffles continue. Not thread-safe.
class ShuffleStream {
 public:
  explicit ShuffleStream(uint32_t seed) : generator_(seed) {}

  // A uniform integer in [0, max].
  uint64_t Draw(uint64_t max);
  void Shuffle(std::span<int32_t> values) { ShuffleSpan(values); }
  void Shuffle(std::span<uint32_t> values) { ShuffleSpan(values); }
  void Shuffle(std::span<int64_t> values) { ShuffleSpan(values); }

 private:
  template <class T>
  void ShuffleSpan(std::span<T> values);

  std::mt19937 generator_;  // the standard fixes its seeding to init_genrand
};

}  // namespace mt::data
