// Digests of a slice's bytes, block by block, so that a reader of a part checks no more than the
// blocks that hold it. Blocks begin at multiples of block_bytes from the slice's first byte; the
// last one is what is left. Pure; an object is used by one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace mt::checkpoint {

// Of what is written: small beside a slice of a large matrix, large beside a digest.
inline constexpr int64_t kBlockBytes = int64_t{4} << 20;
// Format version 1 had one digest for a slice of any length.
inline constexpr int64_t kWholeSliceBlock = std::numeric_limits<int64_t>::max();

// XXH3-128 (seed 0) of each block, in order.
using BlockDigests = std::vector<base::Hash128Value>;

// Blocks of a slice of so many bytes. At least one: that of an empty slice is empty.
constexpr int64_t NumBlocks(int64_t bytes, int64_t block_bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / block_bytes + 1;
}

// Digests bytes that arrive in pieces of any length, in one pass.
class BlockHasher {
 public:
  explicit BlockHasher(int64_t block_bytes) : block_bytes_(block_bytes), left_(block_bytes) {}

  void Add(std::string_view bytes);
  // The digests of all bytes added since construction or the last Take; then starts over.
  BlockDigests Take();

 private:
  const int64_t block_bytes_;
  int64_t left_;  // bytes until the block under way is full
  base::Hash128 hash_;
  BlockDigests digests_;
};

}  // namespace mt::checkpoint
