// Which slots a job gets: all of its ranks at once or none (gang), on the fewest nodes, and ranks
// that share matrices (a tensor-parallel group) always on one node. And the order in which waiting
// jobs are served. Pure; O(N log N) in nodes; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
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

// Ranks in mesh order (common/layout/mesh.h): tp changes fastest, so every `group` consecutive
// ranks are one tensor-parallel group. num_ranks is a multiple of it.
struct Gang {
  int64_t num_ranks = 0;
  int64_t group = 1;
};

// One slot per rank, ranks numbered node by node, no group on two nodes; empty where the free slots
// do not suffice. A job that fits one node gets the node with the fewest free slots that suffice; a
// larger one takes nodes with room for the most groups first, its rest by the same rule. Equal
// nodes go by name, so the result depends on the input's content only.
std::vector<PlacedRank> Place(std::vector<NodeOffer> offers, const Gang& gang);

struct WaitingJob {
  std::string uid;
  std::string name;
  int64_t priority = 0;
  int64_t created_us = 0;
  int64_t num_slots = 0;
  int64_t group = 1;                            // consecutive ranks that share a node
  int device = 0;                               // DeviceType; 0: see TakesGpus
  const char* slot_kind = "";                   // "CPU" or "GPU"
  std::map<std::string, std::string> selector;  // labels that a node must have
  bool exclusive = false;                       // whole nodes only
};

// A node that takes work, as it is now.
struct FleetSlot {
  int index;
  int device;  // DeviceType
  bool taken;
  bool out_of_order = false;  // for now: as if it were not there
};
struct FleetNode {
  std::string name;
  std::map<std::string, std::string> labels;
  std::vector<FleetSlot> slots;
  bool exclusively_taken = false;  // by a job that wants whole nodes
};

// What the nodes have for a job, and what there is beside: for the reason why it waits.
struct Offered {
  std::vector<NodeOffer> offers;  // of nodes that it may use, those without a free slot too
  int64_t num_connected = 0;      // nodes that take work
  int64_t num_nodes = 0;          // of those, with slots of its kind
  int64_t num_matching = 0;       // of those, with its labels
  int64_t num_whole = 0;          // of those, with no slot taken
  int64_t total = 0;              // slots of the matching ones
  int64_t capacity = 0;           // of those, the ones that whole groups could take
  int64_t free = 0;               // slots that it could take now
  int64_t out_of_order = 0;       // slots of the matching ones that are not counted above
};
Offered OfferTo(const WaitingJob& job, const std::vector<FleetNode>& fleet);

// What `device: auto` takes: GPUs where a node that the job may use has any, free and in order or
// not, else CPU slots.
bool TakesGpus(const WaitingJob& job, const std::vector<FleetNode>& fleet, int gpu_device);

// Higher priority first, then older, then by uid.
void SortQueue(std::vector<WaitingJob>* jobs);

// Whether the matching nodes could hold it if nothing else ran.
bool FitsCluster(const WaitingJob& job, const Offered& offered);

// Why this job waits: "needs 8 CPU slots, cluster has 2", "needs 8 CPU slots, 3 of 8 are free",
// "needs 1 GPU slot, no connected node has GPU slots", "needs 2 CPU slots on nodes with zone=b, no
// connected node has these labels", "needs 2 x 2 CPU slots (tensor-parallel groups of 2, each on
// one node), free: 3 + 1".
std::string WaitReason(const WaitingJob& job, const Offered& offered);

}  // namespace mt::daemon
