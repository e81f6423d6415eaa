// Memory for the messages that a member has sent and that are not yet received: blocks in its arena
// of the group's segment. The sender alone allocates and frees; receivers only count what they have
// taken. The arena holds as much as was ever unread at one time, and is used again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "worker/comm/shm/segment.h"

namespace mt::comm {

// Used by the group's thread.
class ShmOutbox {
 public:
  ShmOutbox(ShmSegment* segment, int my_index) : segment_(segment), my_index_(my_index) {}

  struct Block {
    int64_t offset = 0;  // in the arena
    int64_t capacity = 0;
  };
  // A block for the message with this number on the edge to `peer`. It is free again once the
  // receiver has taken the message.
  Block Allocate(int peer, int edge, uint64_t number, int64_t bytes);

 private:
  struct Unread {
    uint64_t number = 0;
    Block block;
  };
  using PeerEdge = std::pair<int, int>;

  void FreeTaken(const PeerEdge& edge, std::deque<Unread>* unread);
  // The smallest free block that is large enough; capacity 0 if there is none.
  Block TakeFree(int64_t bytes);

  ShmSegment* const segment_;
  const int my_index_;
  std::map<PeerEdge, std::deque<Unread>> unread_;  // in the order of their numbers
  std::vector<Block> free_;
  int64_t num_unread_ = 0;
  int64_t end_ = 0;  // of the arena's used part
};

}  // namespace mt::comm
