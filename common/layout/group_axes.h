// The one place that names the groups of a job's ranks: along which axes of the mesh each runs,
// what it is called, who is in it, and which rank speaks for those that hold the same. Whoever
// makes groups, counts replicas or sums over ranks asks here, so that a new axis changes the
// answers here alone (torchtitan's parallel_dims.py has this place there). Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/layout/mesh.h"

namespace mt::layout {

// What the ranks along some axes are to each other.
inline constexpr AxisSet kWorldAxes = {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp};
// Tensor ranks share each matrix. They read the same samples and compute the same losses.
inline constexpr AxisSet kTensorAxes = {Axis::kTp};
// Data replicas read different samples.
inline constexpr AxisSet kDataAxes = {Axis::kDp};
// Gradient replicas hold the same parameters; their gradients and their losses are terms of one
// sum. Context ranks are among them, though they share samples (as in Megatron-LM).
inline constexpr AxisSet kGradientAxes = {Axis::kCp, Axis::kDp};
// Stages hold different layers of one pipeline.
inline constexpr AxisSet kStageAxes = {Axis::kPp};
// The ranks that hold the network together once.
inline constexpr AxisSet kNetworkAxes = {Axis::kTp, Axis::kPp};

// What a group is used for. A group runs its calls in order and for one thread at a time, so uses
// that may overlap have a group each, even of the same ranks.
enum class GroupUse : uint8_t {
  kWorld,          // "world": words between hosts, saves for which training waits
  kCheckpoint,     // "checkpoint": saves that go on beside training
  kControl,        // "control": end-of-step vectors, sums of evaluations
  kTensor,         // "tp": inside layers
  kTensorCopies,   // "tp-copies": the same by copies, where the ranks' GPUs reach each other
  kTensorControl,  // "tp-control": gradients of parameters that tensor ranks hold whole
  kGradients,      // "dp-reduce": their sums over the replicas
  kWeights,        // "dp-gather": gathered behind the update
  kTied,           // "tied": the gradient of a word table that the first and the last stage hold
  kDecode,         // "decode": texts that the ranks of one network write together
};
inline constexpr int kNumGroupUses = 10;

// The first part of a group's name, as above.
std::string_view Name(GroupUse use);
// The same of the groups of two that links between stages have (worker/parallel/pipeline/edges.h).
inline constexpr std::string_view kActivationLink = "pp-act";
inline constexpr std::string_view kGradientLink = "pp-grad";

// A rank in a group.
struct GroupPlace {
  std::string name;  // "dp-reduce/3": the use and the first member; unique in the job
  Group members;     // by world rank, ascending
  int index = 0;     // of the rank among them
};

// The groups as one rank sees them.
class GroupAxes {
 public:
  // CHECKs that the mesh has the rank. `tied_tables`: the first and the last of several stages hold
  // a word table each, which must stay equal.
  GroupAxes(const Mesh& mesh, int world_rank, bool tied_tables);

  const Mesh& mesh() const { return mesh_; }
  int world_rank() const { return world_rank_; }
  const Coordinates& at() const { return at_; }

  // Number of ranks along the axes, and this one's index among them.
  int SizeOf(AxisSet axes) const { return mesh_.GroupSize(axes); }
  int IndexIn(AxisSet axes) const { return mesh_.RankInGroup(world_rank_, axes); }
  // True of one of the ranks that share matrices: what they all have alike (losses, parameters that
  // each holds whole) counts once in sums over the world, and is saved once, by this one.
  bool leads_tensor_ranks() const { return IndexIn(kTensorAxes) == 0; }

  // This rank's group of the use; nullopt where it would be the only member, or on a stage that
  // holds no tied table.
  std::optional<GroupPlace> PlaceIn(GroupUse use) const;
  // True on both ends of a tied table.
  bool holds_tied_table() const;

 private:
  Group MembersOf(GroupUse use) const;

  Mesh mesh_;
  int world_rank_;
  Coordinates at_;
  bool tied_tables_;
};

}  // namespace mt::layout
