// The order of shuffled documents, in memory that is bounded whatever their number.
#pragma once

#include <cstdint>
#include <vector>

namespace mt::data {

// Up to `most_listed` documents: numpy's shuffle (ShuffleStream), as a list. Beyond: a permutation
// that is computed for each number, by a network of four Feistel rounds over the next power of
// four, walked until the result is below the count (Black and Rogaway 2002, section 3). The same
// seed and count give the same order everywhere: formats depend on it. Immutable and thread-safe.
class DocumentOrder {
 public:
  static constexpr int64_t kMostListed = int64_t{1} << 26;

  DocumentOrder(int64_t documents, uint32_t seed, int64_t most_listed = kMostListed);

  // The document that stands at `place`, 0 <= place < documents.
  int64_t At(int64_t place) const;

 private:
  const int64_t documents_;
  const uint32_t seed_;
  int half_bits_ = 1;           // of the network's halves
  std::vector<uint32_t> list_;  // empty where it is computed
};

}  // namespace mt::data
