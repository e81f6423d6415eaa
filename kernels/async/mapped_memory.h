// Which ranks map whose memory: who frees it must know of each that it does so no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/async/vector_clock.h"

namespace mt::kernels::async {

// Not thread-safe.
class MappedMemory {
 public:
  // The rank maps memory from there on.
  void Begin(int rank, const void* data) { mappings_.push_back({.data = data, .rank = rank}); }
  // The end of such a mapping is the first call of stream `index` in vector clocks, which no other
  // stream has.
  void End(int rank, const void* data, size_t index);
  // The ranks that may still map memory that is freed, as far as `clock` knows; forgets them.
  std::vector<int> Forget(const void* data, int64_t bytes, const VectorClock& clock);

 private:
  struct Mapping {
    const void* data = nullptr;
    int rank = 0;
    bool over = false;
    size_t index = 0;
  };
  std::vector<Mapping> mappings_;  // of memory that is not freed
};

}  // namespace mt::kernels::async
