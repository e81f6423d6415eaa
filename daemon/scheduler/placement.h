// Gang scheduling: which slots a job gets, all of its ranks at once or none, on as few nodes as
// possible, with each tensor parallel group on a single node; and the order in which waiting jobs
// are served. Pure; O(N log N) in nodes; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mt::daemon {

// What one node offers of the requested kind of slot.
struct NodeOffer {
  std::string node;
  int64_t num_slots = 0;        // slots of this kind, used ones included
  std::vector<int> free_slots;  // their indices, ascending
};

// The slot of one rank.
struct PlacedRank {
  int rank;
  std::string node;
  int slot;
  bool operator==(const PlacedRank&) const = default;
};

// The shape of a job. Ranks are in mesh order (common/layout/mesh.h) with tp fastest, so every
// `group` consecutive ranks form one tensor parallel group; num_ranks is a multiple of group.
struct Gang {
  int64_t num_ranks = 0;
  int64_t group = 1;
};

// One slot per rank, with ranks numbered node by node and no group split over two nodes; empty
// where the free slots do not suffice. A job that fits on one node gets the node with the fewest
// free slots that suffice. A larger one fills the nodes with room for the most groups first, and
// its remainder by the same rule. Ties are broken by name, so the result depends only on the
// offers' content.
std::vector<PlacedRank> Place(std::vector<NodeOffer> offers, const Gang& gang);

// The same for a job that was placed before and lost its ranks: groups whose slots are all free
// keep them, the others get free slots as above; empty where these do not suffice.
std::vector<PlacedRank> PlaceAgain(const std::vector<PlacedRank>& before,
                                   std::vector<NodeOffer> offers, const Gang& gang);

// A queued job, as far as its placement depends on it.
struct WaitingJob {
  std::string uid;
  std::string name;
  int64_t priority = 0;
  int64_t created_us = 0;
  int64_t num_slots = 0;
  int64_t group = 1;                            // consecutive ranks that must share a node
  int device = 0;                               // DeviceType; 0: auto, see TakesGpus
  const char* slot_kind = "";                   // "CPU" or "GPU"
  std::map<std::string, std::string> selector;  // labels that a node must have
  bool exclusive = false;                       // only nodes without another job
  bool stands_back = false;                     // it comes after all others, whatever its priority
  bool goes_first = false;                      // it comes before all others of its priority
};

// A slot and a node that accepts work, in their current state.
struct FleetSlot {
  int index;
  int device;  // DeviceType
  bool taken;
  bool out_of_order = false;  // temporarily unusable: counts as absent
  std::string why{};          // it is out of order
};
struct FleetNode {
  std::string name;
  std::map<std::string, std::string> labels;
  std::vector<FleetSlot> slots;
  bool exclusively_taken = false;  // by a job that asked for whole nodes
};

// What the nodes offer to a job, with the counts from which WaitReason explains why it waits.
struct Offered {
  std::vector<NodeOffer> offers;  // of nodes that the job may use, also those without a free slot
  int64_t num_connected = 0;      // nodes that accept work
  int64_t num_nodes = 0;          // of those, nodes with slots of the job's kind
  int64_t num_matching = 0;       // of those, nodes with its labels
  int64_t num_whole = 0;          // of those, nodes without a used slot
  int64_t total = 0;              // slots of the matching nodes
  int64_t capacity = 0;           // of those, slots that whole groups could use
  int64_t free = 0;               // slots that the job could use now
  int64_t out_of_order = 0;       // unusable slots of the matching nodes, not counted above
  std::string why_out_of_order;   // of the first of them, with its node; empty: none says why
};
// Filters the fleet by slot kind, labels and exclusiveness, and counts.
Offered OfferTo(const WaitingJob& job, const std::vector<FleetNode>& fleet);

// The device for `device: auto`: GPUs where a node that the job may use has any, whether free and
// in order or not, else CPU slots. `gpu_device` is DeviceType's GPU.
bool TakesGpus(const WaitingJob& job, const std::vector<FleetNode>& fleet, int gpu_device);

// Sorts those that stand back behind the others, each by priority (higher first), then those that
// go first, then by creation time, then by uid.
void SortQueue(std::vector<WaitingJob>* jobs);

// True where the matching nodes could hold the job if nothing else ran on them.
bool FitsCluster(const WaitingJob& job, const Offered& offered);

// Why the job waits: "needs 8 CPU slots, cluster has 2", "needs 8 CPU slots, 3 of 8 are free",
// "needs 1 GPU slot, no connected node has GPU slots", "needs 2 CPU slots on nodes with zone=b, no
// connected node has these labels", "needs 2 x 2 CPU slots (tensor-parallel groups of 2, each on
// one node), free: 3 + 1".
std::string WaitReason(const WaitingJob& job, const Offered& offered);

}  // namespace mt::daemon
