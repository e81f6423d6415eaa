// Which checkpoint of a directory: the step it holds and the directory epoch that saved it. A
// value.
#pragma once

#include <compare>
#include <cstdint>

namespace mt::checkpoint {

struct CheckpointId {
  int64_t step = 0;
  int64_t epoch = 0;
  friend auto operator<=>(const CheckpointId&, const CheckpointId&) = default;
};

// The order of a directory: by epoch, then step.
inline bool IsNewer(const CheckpointId& a, const CheckpointId& b) {
  return a.epoch != b.epoch ? a.epoch > b.epoch : a.step > b.step;
}

}  // namespace mt::checkpoint
