// Gang placement, the order of the queue, and why a job waits.
#include "daemon/scheduler/placement.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

NodeOffer Offer(const std::string& node, int num_free) {
  NodeOffer offer{.node = node, .num_slots = num_free, .free_slots = {}};
  for (int i = 0; i < num_free; ++i) offer.free_slots.push_back(i);
  return offer;
}

std::map<std::string, int> Counts(const std::vector<PlacedRank>& placed) {
  std::map<std::string, int> counts;
  for (const PlacedRank& rank : placed) ++counts[rank.node];
  return counts;
}

TEST(Placement, AllOrNothing) {
  EXPECT_TRUE(Place({Offer("a", 2), Offer("b", 1)}, {.num_ranks = 4}).empty());
  EXPECT_TRUE(Place({}, {.num_ranks = 1}).empty());
  EXPECT_EQ(Place({Offer("a", 2), Offer("b", 2)}, {.num_ranks = 4}).size(), 4u);
}

TEST(Placement, TightestSingleNode) {
  EXPECT_EQ(Counts(Place({Offer("a", 8), Offer("b", 3), Offer("c", 4)}, {.num_ranks = 3})),
            (std::map<std::string, int>{{"b", 3}}));
  EXPECT_EQ(Counts(Place({Offer("b", 4), Offer("a", 4)}, {.num_ranks = 2})),
            (std::map<std::string, int>{{"a", 2}}));
}

TEST(Placement, FewestNodesThenTightestRest) {
  const auto placed =
      Place({Offer("a", 2), Offer("b", 8), Offer("c", 4), Offer("d", 3)}, {.num_ranks = 10});
  EXPECT_EQ(Counts(placed), (std::map<std::string, int>{{"a", 2}, {"b", 8}}));
  for (size_t i = 0; i < placed.size(); ++i) EXPECT_EQ(placed[i].rank, static_cast<int>(i));
  EXPECT_EQ(placed[0].node, "b");
  EXPECT_EQ(placed[9], (PlacedRank{9, "a", 1}));
}

TEST(Placement, NeverASlotTwice) {
  std::set<std::pair<std::string, int>> seen;
  for (const PlacedRank& rank :
       Place({Offer("a", 5), Offer("b", 7), Offer("c", 6)}, {.num_ranks = 18})) {
    EXPECT_TRUE(seen.insert({rank.node, rank.slot}).second);
  }
  EXPECT_EQ(seen.size(), 18u);
}

// The node of each rank, in the order of ranks: "aabb".
std::string NodesOf(const std::vector<PlacedRank>& placed) {
  std::string nodes;
  for (size_t i = 0; i < placed.size(); ++i) {
    EXPECT_EQ(placed[i].rank, static_cast<int>(i));
    nodes += placed[i].node;
  }
  return nodes;
}

TEST(Placement, ATensorGroupStaysOnOneNode) {
  const Gang pairs{.num_ranks = 4, .group = 2};
  EXPECT_EQ(NodesOf(Place({Offer("a", 3), Offer("b", 1)}, pairs)), "");
  EXPECT_EQ(NodesOf(Place({Offer("a", 2), Offer("b", 2)}, pairs)), "aabb");
  // Whole groups only: one slot of each node stays free.
  EXPECT_EQ(NodesOf(Place({Offer("a", 3), Offer("b", 3)}, pairs)), "aabb");
  EXPECT_EQ(NodesOf(Place({Offer("a", 3), Offer("b", 5)}, {.num_ranks = 6, .group = 2})), "bbbbaa");
  EXPECT_EQ(NodesOf(Place({Offer("a", 3), Offer("b", 3)}, {.num_ranks = 6, .group = 2})), "");
  // The tightest node by slots, not by groups: b wastes none.
  EXPECT_EQ(NodesOf(Place({Offer("a", 5), Offer("b", 4), Offer("c", 9)}, pairs)), "bbbb");
  EXPECT_EQ(
      NodesOf(Place({Offer("a", 3), Offer("b", 2), Offer("c", 4)}, {.num_ranks = 6, .group = 2})),
      "ccccbb");
  EXPECT_EQ(NodesOf(Place({Offer("a", 4), Offer("b", 4)}, {.num_ranks = 8, .group = 8})), "");
}

TEST(Placement, NoGroupSpansNodesWhateverTheFleet) {
  std::mt19937 random(7);
  int placements = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<NodeOffer> offers;
    int64_t room = 0;
    const Gang gang{.num_ranks = 0, .group = 1 + static_cast<int64_t>(random() % 4)};
    for (char name = 'a'; name < 'g'; ++name) {
      offers.push_back(Offer(std::string(1, name), static_cast<int>(random() % 9)));
      room += static_cast<int64_t>(offers.back().free_slots.size()) / gang.group;
    }
    const int64_t groups = 1 + static_cast<int64_t>(random() % 12);
    const auto placed = Place(offers, {.num_ranks = groups * gang.group, .group = gang.group});
    ASSERT_EQ(placed.empty(), room < groups);
    std::set<std::pair<std::string, int>> slots;
    for (size_t i = 0; i < placed.size(); ++i) {
      const size_t first = i / static_cast<size_t>(gang.group) * static_cast<size_t>(gang.group);
      ASSERT_EQ(placed[i].node, placed[first].node);
      ASSERT_TRUE(slots.insert({placed[i].node, placed[i].slot}).second);
    }
    placements += placed.empty() ? 0 : 1;
  }
  EXPECT_GT(placements, 500);
}

TEST(Placement, QueueOrder) {
  std::vector<WaitingJob> queue = {{.uid = "1", .name = "old", .priority = 0, .created_us = 1},
                                   {.uid = "2", .name = "new", .priority = 0, .created_us = 2},
                                   {.uid = "3", .name = "urgent", .priority = 5, .created_us = 3}};
  SortQueue(&queue);
  EXPECT_EQ(queue[0].name, "urgent");
  EXPECT_EQ(queue[1].name, "old");
  EXPECT_EQ(queue[2].name, "new");
}

FleetNode MakeNode(const std::string& name, int slots, int taken,
                   std::map<std::string, std::string> labels = {}) {
  FleetNode node{.name = name, .labels = std::move(labels), .slots = {}};
  for (int i = 0; i < slots; ++i) node.slots.push_back({i, v1::CPU_SLOT, i < taken});
  return node;
}

std::string ReasonOf(const WaitingJob& job, const std::vector<FleetNode>& fleet) {
  return WaitReason(job, OfferTo(job, fleet));
}

TEST(Placement, Reasons) {
  WaitingJob job{.num_slots = 8, .device = v1::CPU_SLOT, .slot_kind = "CPU"};
  EXPECT_EQ(ReasonOf(job, {MakeNode("a", 2, 0)}), "needs 8 CPU slots, cluster has 2");
  EXPECT_EQ(ReasonOf(job, {MakeNode("a", 8, 5)}), "needs 8 CPU slots, 3 of 8 are free");
  WaitingJob gpu{.num_slots = 1, .device = v1::GPU, .slot_kind = "GPU"};
  EXPECT_EQ(ReasonOf(gpu, {MakeNode("a", 8, 0)}),
            "needs 1 GPU slot, no connected node has GPU slots");
  EXPECT_EQ(ReasonOf(gpu, {}), "needs 1 GPU slot, no worker is connected");
  job.selector = {{"disk", "ssd"}, {"zone", "b"}};
  EXPECT_EQ(ReasonOf(job, {MakeNode("a", 8, 0, {{"zone", "b"}})}),
            "needs 8 CPU slots on nodes with disk=ssd, zone=b, no connected node has these labels");
  EXPECT_EQ(ReasonOf(job, {MakeNode("a", 4, 0, {{"zone", "b"}, {"disk", "ssd"}}),
                           MakeNode("b", 8, 0, {{"zone", "c"}, {"disk", "ssd"}})}),
            "needs 8 CPU slots on nodes with disk=ssd, zone=b, those have 4");
  const WaitingJob whole{.num_slots = 2,
                         .device = v1::CPU_SLOT,
                         .slot_kind = "CPU",
                         .selector = {},
                         .exclusive = true};
  EXPECT_EQ(ReasonOf(whole, {MakeNode("a", 4, 1), MakeNode("b", 1, 0)}),
            "needs 2 CPU slots on whole nodes (exclusive), 1 of 2 nodes are entirely free");
}

TEST(Placement, GpusBesideCpuSlots) {
  FleetNode both = MakeNode("both", 2, 0, {{"zone", "b"}});
  both.slots = {{0, v1::GPU, true}, {1, v1::GPU, false}, {2, v1::CPU_SLOT, false}};
  const std::vector<FleetNode> fleet = {MakeNode("cpu", 4, 0), both};
  WaitingJob job{.num_slots = 1, .device = v1::GPU, .slot_kind = "GPU"};
  const std::vector<PlacedRank> placed = Place(OfferTo(job, fleet).offers, {.num_ranks = 1});
  EXPECT_EQ(placed, (std::vector<PlacedRank>{{0, "both", 1}}));
  job.num_slots = 2;
  EXPECT_EQ(ReasonOf(job, fleet), "needs 2 GPU slots, 1 of 2 are free");
  job.device = v1::CPU_SLOT;
  EXPECT_EQ(OfferTo(job, fleet).total, 5);
  // auto: GPUs where a node that it may use has any, taken ones too.
  WaitingJob any{.num_slots = 1};
  EXPECT_TRUE(TakesGpus(any, fleet, v1::GPU));
  EXPECT_FALSE(TakesGpus(any, {MakeNode("cpu", 4, 0)}, v1::GPU));
  EXPECT_FALSE(TakesGpus(any, {}, v1::GPU));
  any.selector = {{"zone", "b"}};
  EXPECT_TRUE(TakesGpus(any, fleet, v1::GPU));
  any.selector = {{"zone", "a"}};
  EXPECT_FALSE(TakesGpus(any, fleet, v1::GPU));
}

TEST(Placement, SlotsThatAreOutOfOrder) {
  FleetNode node = MakeNode("a", 0, 0);
  node.slots = {{0, v1::GPU, false}, {1, v1::GPU, false, /*out_of_order=*/true}};
  WaitingJob job{.num_slots = 2, .device = v1::GPU, .slot_kind = "GPU"};
  // What is not there holds nobody back: the job is larger than the cluster as it is now.
  EXPECT_FALSE(FitsCluster(job, OfferTo(job, {node})));
  EXPECT_EQ(ReasonOf(job, {node}), "needs 2 GPU slots, cluster has 1, 1 out of order");
  job.num_slots = 1;
  EXPECT_EQ(Place(OfferTo(job, {node}).offers, {.num_ranks = 1}),
            (std::vector<PlacedRank>{{0, "a", 0}}));
  node.slots[0].taken = true;
  EXPECT_EQ(ReasonOf(job, {node}), "needs 1 GPU slot, 0 of 1 are free, 1 out of order");
  node.slots[0] = {0, v1::GPU, false, /*out_of_order=*/true};
  EXPECT_EQ(ReasonOf(job, {node}), "needs 1 GPU slot, cluster has 0, 2 out of order");
  EXPECT_TRUE(TakesGpus(job, {node}, v1::GPU)) << "it waits for them";
}

TEST(Placement, WhySlotsAreOutOfOrderIsSaidWithTheirNode) {
  const std::string why = "OpenBLAS 0.3.21 multiplies wrongly";
  FleetNode bad = MakeNode("a", 0, 0);
  bad.slots = {{0, v1::CPU_SLOT, false, /*out_of_order=*/true, why},
               {1, v1::CPU_SLOT, false, /*out_of_order=*/true, why}};
  const WaitingJob job{.num_slots = 2, .device = v1::CPU_SLOT, .slot_kind = "CPU"};
  EXPECT_EQ(ReasonOf(job, {bad}),
            "needs 2 CPU slots, cluster has 0, 2 out of order (a: " + why + ")");
  // Of several nodes the first is named.
  FleetNode other = MakeNode("b", 0, 0);
  other.slots = {{0, v1::CPU_SLOT, false, /*out_of_order=*/true, "it was ended by signal 4"}};
  EXPECT_EQ(ReasonOf(job, {MakeNode("0", 1, 0), bad, other}),
            "needs 2 CPU slots, cluster has 1, 3 out of order (a: " + why + ")");
}

TEST(Placement, ReasonsOfGroups) {
  const WaitingJob job{.num_slots = 4, .group = 2, .device = v1::CPU_SLOT, .slot_kind = "CPU"};
  const std::string needs =
      "needs 2 x 2 CPU slots (tensor-parallel groups of 2, each on one node), ";
  EXPECT_EQ(ReasonOf(job, {MakeNode("a", 1, 0), MakeNode("b", 3, 0)}), needs + "cluster has 3 + 1");
  EXPECT_EQ(ReasonOf(job, {MakeNode("a", 4, 3), MakeNode("b", 4, 1)}), needs + "free: 3 + 1");
  std::vector<FleetNode> many;
  for (int i = 0; i < 9; ++i) many.push_back(MakeNode(std::to_string(i), 4, 3));
  EXPECT_EQ(ReasonOf(job, many), needs + "free: 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + ... (9 nodes)");
  EXPECT_TRUE(FitsCluster(job, OfferTo(job, many)));
  const std::vector<FleetNode> odd = {MakeNode("a", 3, 0), MakeNode("b", 1, 0)};
  EXPECT_FALSE(FitsCluster(job, OfferTo(job, odd)));
}

TEST(Placement, LabelsAndWholeNodes) {
  const std::vector<FleetNode> fleet = {MakeNode("a", 4, 1, {{"zone", "a"}}),
                                        MakeNode("b", 4, 0, {{"zone", "b"}})};
  WaitingJob job{.num_slots = 2, .device = v1::CPU_SLOT, .slot_kind = "CPU"};
  EXPECT_EQ(OfferTo(job, fleet).free, 7);
  job.selector = {{"zone", "a"}};
  EXPECT_EQ(Counts(Place(OfferTo(job, fleet).offers, {.num_ranks = 2})),
            (std::map<std::string, int>{{"a", 2}}));
  job.exclusive = true;
  EXPECT_EQ(OfferTo(job, fleet).free, 0);
  job.selector.clear();
  EXPECT_EQ(Counts(Place(OfferTo(job, fleet).offers, {.num_ranks = 2})),
            (std::map<std::string, int>{{"b", 2}}));
  // A node that another job has for itself offers nothing, whatever is idle there.
  FleetNode held = MakeNode("c", 4, 1);
  held.exclusively_taken = true;
  EXPECT_EQ(OfferTo({.num_slots = 1, .device = v1::CPU_SLOT}, {held}).free, 0);
}

std::string TextOf(const std::vector<PlacedRank>& placed) {
  std::string text;
  for (const PlacedRank& one : placed)
    text += (text.empty() ? "" : " ") + one.node + std::to_string(one.slot);
  return text;
}

TEST(PlaceAgain, GroupsWhoseSlotsAreFreeStay) {
  const std::vector<PlacedRank> before = {{0, "b", 2}, {1, "b", 0}, {2, "a", 0}, {3, "a", 1}};
  const auto again = [&](std::vector<NodeOffer> offers) {
    return TextOf(PlaceAgain(before, std::move(offers), {.num_ranks = 4, .group = 2}));
  };
  EXPECT_EQ(again({{"a", 2, {0, 1}}, {"b", 3, {0, 1, 2}}}), "b2 b0 a0 a1") << "as before";
  // a's slot 1 is gone: its group goes elsewhere, as a whole, and takes none that is kept.
  EXPECT_EQ(again({{"a", 2, {0}}, {"b", 5, {0, 1, 2, 3}}}), "b2 b0 b1 b3");
  EXPECT_EQ(again({{"b", 3, {0, 1, 2}}, {"c", 4, {0, 1, 2, 3}}}), "b2 b0 c0 c1");
  // Too few beside what is kept, and at all.
  EXPECT_EQ(again({{"b", 3, {0, 1, 2}}, {"c", 1, {0}}}), "");
  EXPECT_EQ(again({}), "");
  // A rank whose node is gone comes beside one that stays.
  EXPECT_EQ(TextOf(PlaceAgain({{0, "b", 1}, {1, "a", 0}}, {{"b", 3, {0, 1, 2}}},
                              {.num_ranks = 2, .group = 1})),
            "b1 b0");
  // Another number of ranks than before is another job.
  EXPECT_EQ(TextOf(PlaceAgain({}, {{"a", 2, {0, 1}}}, {.num_ranks = 2, .group = 1})), "a0 a1");
}

TEST(SortQueue, WhatGoesFirstComesBeforeOthersOfItsPriority) {
  std::vector<WaitingJob> jobs = {
      {.uid = "old", .priority = 1, .created_us = 1},
      {.uid = "high", .priority = 2, .created_us = 5},
      {.uid = "first", .priority = 1, .created_us = 9, .goes_first = true}};
  SortQueue(&jobs);
  EXPECT_EQ(jobs[0].uid, "high");
  EXPECT_EQ(jobs[1].uid, "first");
  EXPECT_EQ(jobs[2].uid, "old");
}

}  // namespace
}  // namespace mt::daemon
