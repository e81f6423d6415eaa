// Which slots a job gets: all of its ranks at once or none (gang), on the fewest nodes. And the
// order in which waiting jobs are served. Pure; O(N log N) in nodes; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mt::daemon {

// What a node offers of the kind of slot that is asked for.
struct NodeOffer {
  std::string node;
  int64_t num_slots = 0;        // of this kind, taken ones too
  std::vector<int> free_slots;  // indices, ascending
};

struct PlacedRank {
  int rank;
  std::string node;
  int slot;
  bool operator==(const PlacedRank&) const = default;
};

// One slot per rank, ranks numbered node by node; empty where the free slots do not suffice. A job
// that fits one node gets the node with the fewest free slots that suffice; a larger one takes
// nodes with the most free slots first, its rest by the same rule. Equal nodes go by name, so the
// result depends on the input's content only.
std::vector<PlacedRank> Place(std::vector<NodeOffer> offers, int64_t num_ranks);

struct WaitingJob {
  std::string uid;
  std::string name;
  int64_t priority = 0;
  int64_t created_us = 0;
  int64_t num_slots = 0;
  const char* slot_kind = "";  // "CPU" or "GPU"
};

// Higher priority first, then older, then by uid.
void SortQueue(std::vector<WaitingJob>* jobs);

// Why this job waits: "needs 8 CPU slots, cluster has 2", "needs 8 CPU slots, 3 of 8 are free", "no
// worker is connected". `total` and `free` count slots of its kind on nodes that take work.
std::string WaitReason(const WaitingJob& job, int64_t total, int64_t free, bool any_node);

}  // namespace mt::daemon
