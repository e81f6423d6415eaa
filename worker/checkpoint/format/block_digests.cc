// A block is closed when the first byte of the next one arrives, so that a slice which ends with a
// block has no empty one behind it.
#include "worker/checkpoint/format/block_digests.h"

#include <algorithm>
#include <utility>

namespace mt::checkpoint {

void BlockHasher::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (left_ == 0) {
      digests_.push_back(hash_.TakeValue());
      left_ = block_bytes_;
    }
    const int64_t now = std::min(left_, static_cast<int64_t>(bytes.size()));
    hash_.Add(bytes.substr(0, static_cast<size_t>(now)));
    bytes.remove_prefix(static_cast<size_t>(now));
    left_ -= now;
  }
}

BlockDigests BlockHasher::Take() {
  digests_.push_back(hash_.TakeValue());
  left_ = block_bytes_;
  return std::exchange(digests_, {});
}

}  // namespace mt::checkpoint
