// Coverage of the table of layouts: every value of every axis, the combinations that must be
// present, buckets.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/worker/parity/layouts.h"

namespace mt::parity {
namespace {

int Count(const std::function<bool(const Layout&)>& has) {
  return static_cast<int>(std::ranges::count_if(Layouts(), has));
}

TEST(LayoutTable, EveryValueOfEveryAxisOccursAtLeastFourTimes) {
  EXPECT_GE(Layouts().size(), 32U);
  for (const int size : {1, 2, 4}) {
    EXPECT_GE(Count([=](const Layout& l) { return l.tp == size; }), 4) << "tensor " << size;
    EXPECT_GE(Count([=](const Layout& l) { return l.pp == size; }), 4) << "pipeline " << size;
  }
  for (const int size : {1, 2}) {
    EXPECT_GE(Count([=](const Layout& l) { return l.dp == size; }), 4) << "data " << size;
    // Where there is a choice: chunks need a pipeline, slices need replicas.
    EXPECT_GE(Count([=](const Layout& l) { return l.pp > 1 && l.virtual_stages == size; }), 4)
        << "virtual stages " << size;
    EXPECT_GE(Count([=](const Layout& l) { return l.dp > 1 && l.zero_stage == size - 1; }), 4)
        << "ZeRO " << size - 1;
    EXPECT_GE(Count([=](const Layout& l) { return l.tp > 1 && l.sequence_parallel == (size > 1); }),
              4)
        << "sequence parallel " << size - 1;
  }
  using enum Recompute;
  for (const Recompute mode : {kNone, kSelective, kFull, kFullBlock}) {
    EXPECT_GE(Count([=](const Layout& l) { return l.recompute == mode; }), 3)
        << "recompute " << static_cast<int>(mode);
  }
  EXPECT_GE(
      Count([](const Layout& l) { return l.recompute == kFull || l.recompute == kFullBlock; }), 4);
  EXPECT_GE(Count([](const Layout& l) { return l.recompute == kSelective; }), 4);
  for (const Schedule schedule : {Schedule::kGpipe, Schedule::k1f1b, Schedule::kInterleaved}) {
    EXPECT_GE(Count([=](const Layout& l) { return l.pp > 1 && l.schedule == schedule; }), 4)
        << "schedule " << static_cast<int>(schedule);
  }
  for (const Family family : {Family::kGpt2, Family::kLlama}) {
    EXPECT_GE(Count([=](const Layout& l) { return l.family == family; }), 4) << NameOf(family);
  }
}

TEST(LayoutTable, TheHardCombinationsAreThere) {
  EXPECT_GE(Count([](const Layout& l) { return l.tp == 4 && l.pp == 2; }), 1);
  EXPECT_GE(Count([](const Layout& l) { return l.tp == 2 && l.pp == 4; }), 1);
  EXPECT_GE(Count([](const Layout& l) {
              return l.tp == 2 && l.pp == 2 && l.dp == 2 && l.schedule == Schedule::kInterleaved &&
                     l.zero_stage == 1 && l.recompute == Recompute::kFull;
            }),
            1);
  EXPECT_GE(Count([](const Layout& l) { return l.ranks == Ranks::kProcesses; }), 4);
  EXPECT_GE(
      Count([](const Layout& l) { return l.ranks == Ranks::kProcesses && World(l) == kMaxWorld; }),
      1);
  EXPECT_GE(Count([](const Layout& l) { return l.compare_overlap; }), 4);
  EXPECT_GE(Count([](const Layout& l) { return l.ramp; }), 2);
  EXPECT_EQ(Count([](const Layout& l) { return l.sanitized; }), 6);
}

TEST(LayoutTable, EachLayoutIsSensibleAndDifferent) {
  std::set<std::string> names;
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(NameOf(layout));
    EXPECT_TRUE(names.insert(NameOf(layout)).second);
    EXPECT_LE(World(layout), kMaxWorld);
    EXPECT_GT(World(layout), 1);
    EXPECT_EQ(layout.virtual_stages > 1, layout.schedule == Schedule::kInterleaved);
    EXPECT_TRUE(layout.tp > 1 || !layout.sequence_parallel);
    EXPECT_TRUE(layout.dp > 1 || layout.zero_stage == 0);
    EXPECT_TRUE(layout.dp > 1 || !layout.compare_overlap) << "nothing to overlap";
    EXPECT_TRUE(layout.ranks == Ranks::kThreads || !layout.sanitized);
  }
}

}  // namespace
}  // namespace mt::parity
