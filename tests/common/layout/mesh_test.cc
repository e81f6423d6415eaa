// The mesh against Megatron-LM's rank groups and against its own definition.
#include "common/layout/mesh.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace mt::layout {
namespace {

Mesh Make(const MeshSizes& sizes) {
  auto mesh = Mesh::Create(sizes);
  EXPECT_TRUE(mesh.ok());
  return std::move(mesh).value();
}

// Printed by Megatron-LM's rank generator: order tp-cp-ep-dp-pp, world 16, tp 2, cp 2, dp 2, pp 2.
TEST(Mesh, GroupsOfRankZeroAreMegatrons) {
  const Mesh mesh = Make({.tp = 2, .cp = 2, .dp = 2, .pp = 2});
  EXPECT_EQ(mesh.world_size(), 16);
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kTp}), Group({0, 1}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kCp}), Group({0, 2}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kDp}), Group({0, 4}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kPp}), Group({0, 8}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kDp, Axis::kCp}), Group({0, 2, 4, 6}));
  EXPECT_EQ(mesh.GroupOf(0, {Axis::kTp, Axis::kPp}), Group({0, 1, 8, 9}));
}

const std::vector<MeshSizes> kShapes = {{},
                                        {.tp = 2},
                                        {.dp = 3},
                                        {.pp = 4},
                                        {.tp = 2, .dp = 3, .pp = 4},
                                        {.tp = 3, .cp = 2, .dp = 2, .pp = 5}};
const std::vector<AxisSet> kSets = {{},
                                    {Axis::kTp},
                                    {Axis::kDp},
                                    {Axis::kPp},
                                    {Axis::kCp, Axis::kDp},
                                    {Axis::kTp, Axis::kPp},
                                    {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp}};

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  for (const MeshSizes& sizes : kShapes) {
    const Mesh mesh = Make(sizes);
    EXPECT_EQ(mesh.sizes(), sizes);
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const Coordinates at = mesh.CoordinatesOf(rank);
      EXPECT_EQ(mesh.WorldRankOf(at), rank);
      EXPECT_EQ(rank, at.tp + sizes.tp * (at.cp + sizes.cp * (at.dp + sizes.dp * at.pp)));
    }
  }
}

TEST(Mesh, GroupsPartitionTheWorldAndAgreeWithCoordinates) {
  for (const MeshSizes& sizes : kShapes) {
    const Mesh mesh = Make(sizes);
    for (const AxisSet& axes : kSets) {
      SCOPED_TRACE(mesh.ToString() + " along " + axes.ToString());
      std::set<int> seen;
      for (const Group& group : mesh.Groups(axes)) {
        ASSERT_EQ(static_cast<int>(group.size()), mesh.GroupSize(axes));
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        for (size_t i = 0; i < group.size(); ++i) {
          EXPECT_TRUE(seen.insert(group[i]).second);
          EXPECT_EQ(mesh.GroupOf(group[i], axes), group);
          EXPECT_EQ(mesh.RankInGroup(group[i], axes), static_cast<int>(i));
          const Coordinates mine = mesh.CoordinatesOf(group[i]);
          const Coordinates first = mesh.CoordinatesOf(group[0]);
          EXPECT_TRUE(axes.Has(Axis::kTp) || mine.tp == first.tp);
          EXPECT_TRUE(axes.Has(Axis::kCp) || mine.cp == first.cp);
          EXPECT_TRUE(axes.Has(Axis::kDp) || mine.dp == first.dp);
          EXPECT_TRUE(axes.Has(Axis::kPp) || mine.pp == first.pp);
        }
      }
      EXPECT_EQ(static_cast<int>(seen.size()), mesh.world_size());
    }
  }
}

TEST(Mesh, RefusesSizesThatAreNone) {
  EXPECT_EQ(Mesh::Create({.tp = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Mesh::Create({.dp = -1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Mesh::Create({.tp = 65536, .pp = 65536}).ok());
  EXPECT_TRUE(Mesh::Create({.tp = 1024, .pp = 1024}).ok());
}

TEST(MeshDeathTest, RanksOutsideAreABug) {
  const Mesh mesh = Make({.tp = 2});
  EXPECT_DEATH(mesh.CoordinatesOf(2), "rank 2");
  EXPECT_DEATH(mesh.WorldRankOf({.pp = 1}), "pp 1");
}

}  // namespace
}  // namespace mt::layout
