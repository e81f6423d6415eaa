// First the edge's own blocks, which are warm in the caches, then those of all edges, then new
// ones.
#include "worker/comm/shm/outbox.h"

#include <algorithm>

#include "common/base/math.h"

namespace mt::comm {

void ShmOutbox::FreeTaken(const PeerEdge& edge, std::deque<Unread>* unread) {
  const uint64_t taken =
      segment_->edge(my_index_, edge.first, edge.second).taken.load(std::memory_order_acquire);
  while (!unread->empty() && unread->front().number < taken) {
    free_.push_back(unread->front().block);
    unread->pop_front();
    --num_unread_;
  }
}

ShmOutbox::Block ShmOutbox::TakeFree(int64_t bytes) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->capacity < bytes) continue;
    // Of equal ones the last, which was freed last.
    if (best == free_.end() || it->capacity <= best->capacity) best = it;
  }
  if (best == free_.end()) return {};
  const Block block = *best;
  free_.erase(best);
  return block;
}

ShmOutbox::Block ShmOutbox::Allocate(int peer, int edge, uint64_t number, int64_t bytes) {
  if (bytes == 0) return {};
  std::deque<Unread>& unread = unread_[{peer, edge}];
  FreeTaken({peer, edge}, &unread);
  Block block = TakeFree(bytes);
  if (block.capacity == 0) {
    for (auto& [other, messages] : unread_) FreeTaken(other, &messages);
    block = TakeFree(bytes);
  }
  if (block.capacity == 0) {
    if (num_unread_ == 0) {
      // Pieces that were too small become one again.
      free_.clear();
      end_ = 0;
    }
    block = {.offset = end_, .capacity = base::RoundUp(bytes, kPageBytes)};
    end_ += block.capacity;
  }
  unread.push_back({.number = number, .block = block});
  ++num_unread_;
  return block;
}

}  // namespace mt::comm
