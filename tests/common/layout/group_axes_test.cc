// The groups of a job's ranks against Megatron-LM's lists, and over many meshes: that the groups of
// a use part the world, that members agree, and who is in none.
#include "common/layout/group_axes.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mt::layout {
namespace {

constexpr std::array<GroupUse, kNumGroupUses> kUses = {
    GroupUse::kWorld,        GroupUse::kCheckpoint,    GroupUse::kControl,   GroupUse::kTensor,
    GroupUse::kTensorCopies, GroupUse::kTensorControl, GroupUse::kGradients, GroupUse::kWeights,
    GroupUse::kTied,         GroupUse::kDecode};

GroupAxes AxesOf(const MeshSizes& sizes, int world_rank, bool tied_tables = true) {
  return {Mesh::Create(sizes).value(), world_rank, tied_tables};
}

// The groups of a use by name, as all ranks tell them. EXPECTs that they tell the same.
std::map<std::string, Group> GroupsOf(const MeshSizes& sizes, GroupUse use) {
  std::map<std::string, Group> groups;
  const int world = sizes.tp * sizes.cp * sizes.dp * sizes.pp;
  for (int rank = 0; rank < world; ++rank) {
    const std::optional<GroupPlace> place = AxesOf(sizes, rank).PlaceIn(use);
    if (!place) continue;
    const auto [found, is_new] = groups.emplace(place->name, place->members);
    EXPECT_EQ(found->second, place->members) << place->name << " as rank " << rank << " sees it";
    EXPECT_EQ(place->members.at(static_cast<size_t>(place->index)), rank) << place->name;
  }
  return groups;
}

// The example of Megatron-LM's initialize_model_parallel: 16 GPUs, tensor 2, pipeline 4.
TEST(GroupAxes, AreThoseOfMegatronsExample) {
  const MeshSizes sizes{.tp = 2, .dp = 2, .pp = 4};
  using Groups = std::map<std::string, Group>;
  const Groups replicas = GroupsOf(sizes, GroupUse::kGradients);
  EXPECT_EQ(replicas, (Groups{{"dp-reduce/0", {0, 2}},
                              {"dp-reduce/1", {1, 3}},
                              {"dp-reduce/4", {4, 6}},
                              {"dp-reduce/5", {5, 7}},
                              {"dp-reduce/8", {8, 10}},
                              {"dp-reduce/9", {9, 11}},
                              {"dp-reduce/12", {12, 14}},
                              {"dp-reduce/13", {13, 15}}}));
  EXPECT_EQ(GroupsOf(sizes, GroupUse::kTensor), (Groups{{"tp/0", {0, 1}},
                                                        {"tp/2", {2, 3}},
                                                        {"tp/4", {4, 5}},
                                                        {"tp/6", {6, 7}},
                                                        {"tp/8", {8, 9}},
                                                        {"tp/10", {10, 11}},
                                                        {"tp/12", {12, 13}},
                                                        {"tp/14", {14, 15}}}));
  // Its model parallel groups.
  EXPECT_EQ(GroupsOf(sizes, GroupUse::kDecode),
            (Groups{{"decode/0", {0, 1, 4, 5, 8, 9, 12, 13}},
                    {"decode/2", {2, 3, 6, 7, 10, 11, 14, 15}}}));
  // Its embedding groups: the ends of [g0, g4, g8, g12] and of the three beside it.
  EXPECT_EQ(
      GroupsOf(sizes, GroupUse::kTied),
      (Groups{{"tied/0", {0, 12}}, {"tied/1", {1, 13}}, {"tied/2", {2, 14}}, {"tied/3", {3, 15}}}));
}

// Printed by Megatron-LM's rank generator for tp 2, cp 2, dp 2, pp 2: "dp-cp" sums gradients, "dp"
// reads different samples.
TEST(GroupAxes, ContextRanksSumGradientsButShareSamples) {
  const MeshSizes sizes{.tp = 2, .cp = 2, .dp = 2, .pp = 2};
  EXPECT_EQ(GroupsOf(sizes, GroupUse::kGradients).at("dp-reduce/0"), (Group{0, 2, 4, 6}));
  EXPECT_EQ(GroupsOf(sizes, GroupUse::kWeights).at("dp-gather/9"), (Group{9, 11, 13, 15}));
  const GroupAxes axes = AxesOf(sizes, 6);
  EXPECT_EQ(axes.IndexIn(kGradientAxes), 3);
  EXPECT_EQ(axes.SizeOf(kGradientAxes), 4);
  EXPECT_EQ(axes.SizeOf(kDataAxes), 2);
  EXPECT_EQ(axes.IndexIn(kDataAxes), 1);
  EXPECT_EQ(AxesOf(sizes, 4).IndexIn(kDataAxes), 1);
}

const std::array<MeshSizes, 9> kMeshes = {MeshSizes{},
                                          {.tp = 2},
                                          {.dp = 3},
                                          {.pp = 2},
                                          {.pp = 5},
                                          {.tp = 2, .pp = 3},
                                          {.tp = 4, .dp = 2},
                                          {.tp = 2, .dp = 3, .pp = 4},
                                          {.tp = 3, .cp = 2, .dp = 2, .pp = 2}};

// Members of a group by hand: the mesh's sizes multiplied.
int SizeByHand(const MeshSizes& m, GroupUse use) {
  switch (use) {
    case GroupUse::kTensor:
    case GroupUse::kTensorCopies:
    case GroupUse::kTensorControl:
      return m.tp;
    case GroupUse::kGradients:
    case GroupUse::kWeights:
      return m.cp * m.dp;
    case GroupUse::kTied:
      return m.pp > 1 ? 2 : 0;
    case GroupUse::kDecode:
      return m.tp * m.pp;
    default:
      return m.tp * m.cp * m.dp * m.pp;
  }
}

TEST(GroupAxes, OfAUsePartTheWorld) {
  for (const MeshSizes& sizes : kMeshes) {
    const int world = sizes.tp * sizes.cp * sizes.dp * sizes.pp;
    for (const GroupUse use : kUses) {
      const std::string what =
          fmt::format("{} of {}", Name(use), AxesOf(sizes, 0).mesh().ToString());
      std::set<int> seen;
      int members = 0;
      for (const auto& [name, group] : GroupsOf(sizes, use)) {
        EXPECT_EQ(static_cast<int>(group.size()), SizeByHand(sizes, use)) << what;
        EXPECT_TRUE(std::ranges::is_sorted(group)) << what;
        seen.insert(group.begin(), group.end());
        members += static_cast<int>(group.size());
      }
      EXPECT_EQ(static_cast<int>(seen.size()), members) << what << ": a rank is in two";
      // Both ends alone have a tied table, and nobody is in a group of one.
      const int expected = SizeByHand(sizes, use) < 2 ? 0
                           : use == GroupUse::kTied   ? world / sizes.pp * 2
                                                      : world;
      EXPECT_EQ(members, expected) << what;
    }
  }
}

// By them the rendezvous tells groups apart, NCCL has its limits, and logs are read.
TEST(GroupAxes, HaveTheNamesOfTheHeader) {
  std::vector<std::string> names;
  names.reserve(kUses.size());
  for (const GroupUse use : kUses)
    names.push_back(AxesOf({.tp = 2, .dp = 2, .pp = 2}, 7).PlaceIn(use)->name);
  EXPECT_EQ(names, (std::vector<std::string>{"world/0", "checkpoint/0", "control/0", "tp/6",
                                             "tp-copies/6", "tp-control/6", "dp-reduce/5",
                                             "dp-gather/5", "tied/3", "decode/2"}));
}

TEST(GroupAxes, UntiedTablesHaveNoGroup) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(AxesOf({.pp = 4}, rank, /*tied_tables=*/false).PlaceIn(GroupUse::kTied));
    EXPECT_FALSE(AxesOf({.pp = 4}, rank, false).holds_tied_table());
    EXPECT_EQ(AxesOf({.pp = 4}, rank).holds_tied_table(), rank == 0 || rank == 3);
  }
}

TEST(GroupAxes, OneRankOfEachTensorGroupSpeaksForIt) {
  for (const MeshSizes& sizes : kMeshes) {
    std::map<int, int> leaders;  // by the first member of the tensor group
    const int world = sizes.tp * sizes.cp * sizes.dp * sizes.pp;
    for (int rank = 0; rank < world; ++rank) {
      const GroupAxes axes = AxesOf(sizes, rank);
      leaders[rank / sizes.tp] += axes.leads_tensor_ranks() ? 1 : 0;
      EXPECT_EQ(axes.IndexIn(kStageAxes), rank / (sizes.tp * sizes.cp * sizes.dp));
      EXPECT_EQ(axes.SizeOf(kWorldAxes), world);
    }
    for (const auto& [group, count] : leaders) EXPECT_EQ(count, 1) << group;
  }
}

TEST(GroupAxesDeathTest, ARankOutsideIsABug) { EXPECT_DEATH(AxesOf({.tp = 2}, 2), "rank 2"); }

}  // namespace
}  // namespace mt::layout
