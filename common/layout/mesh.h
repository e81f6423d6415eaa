// The mesh of a job's ranks: the coordinates of a world rank, and the ranks that form the process
// group of one or several axes. The order is tp-cp-dp-pp with tp fastest, Megatron-LM's default
// "tp-cp-ep-dp-pp" without expert parallelism, which would split dp: world_rank = tp + TP (cp + CP
// (dp + DP pp)). Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::layout {

// Mesh axes in mesh order; the first varies fastest.
enum class Axis : uint8_t { kTp, kCp, kDp, kPp };
inline constexpr int kNumAxes = 4;

// "tp", "cp", "dp", "pp".
std::string_view Name(Axis axis);

// A set of axes. Within a group the coordinates of these axes vary, the others are fixed.
class AxisSet {
 public:
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= 1U << static_cast<unsigned>(axis);
  }
  constexpr bool Has(Axis axis) const { return (bits_ >> static_cast<unsigned>(axis) & 1U) != 0; }
  constexpr bool operator==(const AxisSet&) const = default;
  // "tp-pp"; "none" for the empty set.
  std::string ToString() const;

 private:
  unsigned bits_ = 0;
};

// Number of ranks along each axis: the parallel sizes of Megatron-LM.
struct MeshSizes {
  int tp = 1;
  int cp = 1;
  int dp = 1;
  int pp = 1;
  bool operator==(const MeshSizes&) const = default;
};

// A rank's place along each axis, from 0.
struct Coordinates {
  int tp = 0;
  int cp = 0;
  int dp = 0;
  int pp = 0;
  bool operator==(const Coordinates&) const = default;
};

// World ranks of a process group in ascending order, which is also the order of ranks within the
// group.
using Group = std::vector<int>;

class Mesh {
 public:
  // InvalidArgument where a size is below 1 or the product exceeds 2^20 ranks.
  static StatusOr<Mesh> Create(const MeshSizes& sizes);

  int world_size() const { return stride_[kNumAxes]; }
  int size(Axis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  MeshSizes sizes() const;

  // Conversions in both directions. They CHECK that the rank, or each coordinate, lies in the mesh.
  Coordinates CoordinatesOf(int world_rank) const;
  int WorldRankOf(const Coordinates& at) const;

  // The group along `axes` that contains `world_rank`, that rank's index in it, and the size of
  // such a group.
  Group GroupOf(int world_rank, AxisSet axes) const;
  int RankInGroup(int world_rank, AxisSet axes) const;
  int GroupSize(AxisSet axes) const;
  // All groups along `axes`, ordered by their first member; there are world_size / GroupSize of
  // them.
  std::vector<Group> Groups(AxisSet axes) const;

  // "tp 2 x cp 1 x dp 2 x pp 2".
  std::string ToString() const;

 private:
  explicit Mesh(const MeshSizes& sizes);
  int CoordinateOf(int world_rank, size_t axis) const {
    return world_rank / stride_[axis] % sizes_[axis];
  }

  std::array<int, kNumAxes> sizes_;
  std::array<int, kNumAxes + 1>
      stride_;  // distance of neighbours along each axis in world ranks; last: the world size
};

}  // namespace mt::layout
