// Adds up what ranks need, machine by machine.
#include "worker/memory/machine_room.h"

#include <algorithm>
#include <map>

namespace mt::memory {

int64_t RankWithoutRoom(std::span<const RankRoom> ranks) {
  struct Machine {
    int64_t first_rank = 0;
    int64_t needed = 0;
    int64_t available = 0;
  };
  std::map<std::string, Machine> machines;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int64_t available = ranks[i].available_bytes;
    const auto [at, is_new] = machines.try_emplace(
        ranks[i].machine, Machine{.first_rank = static_cast<int64_t>(i), .available = available});
    at->second.needed += ranks[i].needed_bytes;
    at->second.available = std::min(at->second.available, available);
  }
  int64_t first = std::ssize(ranks);
  for (const auto& [id, machine] : machines) {
    if (machine.needed <= machine.available) continue;
    first = std::min(first, machine.first_rank);
  }
  return first;
}

}  // namespace mt::memory
