// Few mappings live at a time: a list does.
#include "kernels/async/mapped_memory.h"

#include <algorithm>

namespace mt::kernels::async {

void MappedMemory::End(int rank, const void* data, size_t index) {
  const auto mapping = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& each) {
    return !each.over && each.rank == rank && each.data == data;
  });
  if (mapping == mappings_.end()) return;  // of memory that was freed
  mapping->over = true;
  mapping->index = index;
}

std::vector<int> MappedMemory::Forget(const void* data, int64_t bytes, const VectorClock& clock) {
  const auto in_memory = [&](const Mapping& each) {
    return each.data >= data && each.data < static_cast<const std::byte*>(data) + bytes;
  };
  std::vector<int> ranks;
  for (const Mapping& each : mappings_) {
    if (in_memory(each) && !(each.over && clock.Covers(each.index, 1))) ranks.push_back(each.rank);
  }
  std::erase_if(mappings_, in_memory);
  return ranks;
}

}  // namespace mt::kernels::async
