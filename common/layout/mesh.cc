// Mixed-radix arithmetic on world ranks: stride_[axis] is the distance between neighbours on an
// axis.
#include "common/layout/mesh.h"

#include "common/base/check.h"

namespace mt::layout {
namespace {

constexpr int64_t kMaxRanks = int64_t{1} << 20;
constexpr std::array<std::string_view, kNumAxes> kNames = {"tp", "cp", "dp", "pp"};

}  // namespace

std::string_view Name(Axis axis) { return kNames[static_cast<size_t>(axis)]; }

std::string AxisSet::ToString() const {
  std::string text;
  for (int i = 0; i < kNumAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (!Has(axis)) continue;
    if (!text.empty()) text += '-';
    text += Name(axis);
  }
  return text.empty() ? "none" : text;
}

Mesh::Mesh(const MeshSizes& sizes) : sizes_{sizes.tp, sizes.cp, sizes.dp, sizes.pp}, stride_{} {
  stride_[0] = 1;
  for (size_t i = 0; i < kNumAxes; ++i) stride_[i + 1] = stride_[i] * sizes_[i];
}

StatusOr<Mesh> Mesh::Create(const MeshSizes& sizes) {
  int64_t product = 1;
  for (const int size : {sizes.tp, sizes.cp, sizes.dp, sizes.pp}) {
    if (size < 1) return base::InvalidArgument("a mesh axis has {} ranks; at least 1", size);
    product *= size;
    if (product > kMaxRanks) {
      return base::InvalidArgument("tp {} x cp {} x dp {} x pp {} is more than {} ranks", sizes.tp,
                                   sizes.cp, sizes.dp, sizes.pp, kMaxRanks);
    }
  }
  return Mesh(sizes);
}

MeshSizes Mesh::sizes() const {
  return {.tp = sizes_[0], .cp = sizes_[1], .dp = sizes_[2], .pp = sizes_[3]};
}

Coordinates Mesh::CoordinatesOf(int world_rank) const {
  CHECK(world_rank >= 0 && world_rank < world_size()) << "rank " << world_rank;
  return {.tp = CoordinateOf(world_rank, 0),
          .cp = CoordinateOf(world_rank, 1),
          .dp = CoordinateOf(world_rank, 2),
          .pp = CoordinateOf(world_rank, 3)};
}

int Mesh::WorldRankOf(const Coordinates& at) const {
  const std::array<int, kNumAxes> place = {at.tp, at.cp, at.dp, at.pp};
  int world_rank = 0;
  for (size_t i = 0; i < kNumAxes; ++i) {
    CHECK(place[i] >= 0 && place[i] < sizes_[i]) << kNames[i] << " " << place[i];
    world_rank += place[i] * stride_[i];
  }
  return world_rank;
}

int Mesh::GroupSize(AxisSet axes) const {
  int size = 1;
  for (size_t i = 0; i < kNumAxes; ++i) {
    if (axes.Has(static_cast<Axis>(i))) size *= sizes_[i];
  }
  return size;
}

Group Mesh::GroupOf(int world_rank, AxisSet axes) const {
  CHECK(world_rank >= 0 && world_rank < world_size()) << "rank " << world_rank;
  Group members = {world_rank};
  // Starts from the rank whose varying coordinates are 0 and adds the slower axes last, which keeps
  // the order rising.
  for (size_t i = 0; i < kNumAxes; ++i) {
    if (axes.Has(static_cast<Axis>(i))) members[0] -= CoordinateOf(world_rank, i) * stride_[i];
  }
  for (size_t i = 0; i < kNumAxes; ++i) {
    if (!axes.Has(static_cast<Axis>(i))) continue;
    const size_t known = members.size();
    for (int k = 1; k < sizes_[i]; ++k) {
      for (size_t j = 0; j < known; ++j) members.push_back(members[j] + k * stride_[i]);
    }
  }
  return members;
}

int Mesh::RankInGroup(int world_rank, AxisSet axes) const {
  CHECK(world_rank >= 0 && world_rank < world_size()) << "rank " << world_rank;
  int place = 0;
  int stride = 1;
  for (size_t i = 0; i < kNumAxes; ++i) {
    if (!axes.Has(static_cast<Axis>(i))) continue;
    place += CoordinateOf(world_rank, i) * stride;
    stride *= sizes_[i];
  }
  return place;
}

std::vector<Group> Mesh::Groups(AxisSet axes) const {
  std::vector<Group> groups;
  groups.reserve(static_cast<size_t>(world_size() / GroupSize(axes)));
  for (int rank = 0; rank < world_size(); ++rank) {
    if (RankInGroup(rank, axes) == 0) groups.push_back(GroupOf(rank, axes));
  }
  return groups;
}

std::string Mesh::ToString() const {
  return fmt::format("tp {} x cp {} x dp {} x pp {}", sizes_[0], sizes_[1], sizes_[2], sizes_[3]);
}

}  // namespace mt::layout
