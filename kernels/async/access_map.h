// Who last wrote, and who has since read, each byte of a device's memory; finds accesses that
// conflict (one of them writes) and have no order. Where there is a race one is found, whatever the
// order in which calls happen to run; which of several it is may depend on that order, since a
// write hides what was before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/async/async_call.h"
#include "kernels/async/vector_clock.h"

namespace mt::kernels::async {

// Not thread-safe.
class AccessMap {
 public:
  // The call that accesses: number `number` of the stream with this index, in the clock's order.
  struct Caller {
    std::string name;  // "linear.Forward on s0"
    size_t stream = 0;
    int64_t number = 0;
    const VectorClock* clock = nullptr;  // all that comes before it, and itself
  };
  // Enters an access and returns a description of every earlier one that it races with: "'y' of
  // linear.Forward on s0 (writes)".
  std::vector<std::string> Enter(const MemoryUse& use, const Caller& caller);
  // Ends the life of memory; returns the accesses that `clock` does not cover.
  std::vector<std::string> Forget(const void* data, int64_t bytes, const VectorClock& clock);

 private:
  struct Past {
    std::string text;
    size_t stream = 0;
    int64_t number = 0;
  };
  // The bytes from the key to `end` have one history.
  struct Cell {
    uintptr_t end = 0;
    std::optional<Past> write;
    std::vector<Past> reads;  // since the write, the last one of each stream
  };
  using Cells = std::map<uintptr_t, Cell>;

  // Cuts the cell that contains `at`, if any, so that a cell begins there.
  void CutAt(uintptr_t at);
  // Makes cells cover [begin, end) exactly; returns the first.
  Cells::iterator Cover(uintptr_t begin, uintptr_t end);

  Cells cells_;
};

}  // namespace mt::kernels::async
