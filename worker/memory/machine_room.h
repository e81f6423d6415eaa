// Whether the ranks of a job have room for what each of them would take: ranks of one machine, or
// of the containers of it, share its memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace mt::memory {

// What a rank would take of a memory, and what is free there for all its ranks together.
struct RankRoom {
  std::string machine;  // whose memory it is; equal texts: the same
  int64_t needed_bytes = 0;
  int64_t available_bytes = 0;
};

// By rank: the first rank on a machine that has not what its ranks need together; the number of
// ranks where all have. Where ranks of a machine differ in what is available, the least counts.
int64_t RankWithoutRoom(std::span<const RankRoom> ranks);

}  // namespace mt::memory
