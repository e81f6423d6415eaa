// Identity of a checkpoint within its directory: the step it holds and the directory epoch that
// saved it.
#pragma once

#include <compare>
#include <cstdint>

namespace mt::checkpoint {

struct CheckpointId {
  int64_t step = 0;
  int64_t epoch = 0;
  friend auto operator<=>(const CheckpointId&, const CheckpointId&) = default;
};

// True if `a` is newer than `b`: checkpoints are ordered by epoch, then by step.
inline bool IsNewer(const CheckpointId& a, const CheckpointId& b) {
  return a.epoch != b.epoch ? a.epoch > b.epoch : a.step > b.step;
}

}  // namespace mt::checkpoint
