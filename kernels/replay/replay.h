// Repeats logged calls, each kind by itself in a loop, to measure how long its kernels take when
// nothing else runs between them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/replay/call_log.h"

namespace mt::kernels::replay {

struct ReplayArgs {
  // Operands are rotated through this many bytes of memory, so that none is found in a cache.
  int64_t rotate_bytes = 200'000'000;
  // Seconds of timing per kind of call. Kinds with at least `large_share` of the total are timed
  // again for `large_seconds`, the time that the clocks take to settle under such work.
  double seconds = 0.2;
  double large_seconds = 2;
  double large_share = 0.04;
  // Called after each kind of call; may be empty.
  std::function<void()> on_progress;
};

struct CallTime {
  std::string label;
  int64_t count = 0;
  double seconds = 0;  // seconds of one call
  double total() const { return static_cast<double>(count) * seconds; }
};

// Returns the times, the largest total first. Calls run on the memory with which they were logged,
// which must still be allocated and is overwritten, and on copies of it as far as the device has
// room; indices are those of the log. Blocks. One thread, with nothing else running on the device.
std::vector<CallTime> Replay(Backend& backend, const std::vector<LoggedCall>& calls,
                             const ReplayArgs& args);

}  // namespace mt::kernels::replay
