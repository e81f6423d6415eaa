// Ranks that share the memory of machines.
#include "worker/memory/machine_room.h"

#include <vector>

#include <gtest/gtest.h>

namespace mt::memory {
namespace {

int64_t Short(const std::vector<RankRoom>& ranks) { return RankWithoutRoom(ranks); }

TEST(MachineRoom, RanksOfAMachineNeedRoomTogether) {
  EXPECT_EQ(Short({{"a", 5, 10}, {"a", 5, 10}}), 2) << "all have";
  EXPECT_EQ(Short({{"a", 5, 9}, {"a", 5, 9}}), 0);
  EXPECT_EQ(Short({{"a", 5, 9}, {"b", 5, 9}}), 2) << "each has its own";
}

TEST(MachineRoom, TheLeastThatARankSawCounts) {
  EXPECT_EQ(Short({{"a", 5, 100}, {"a", 5, 9}}), 0);
  EXPECT_EQ(Short({{"b", 5, 5}, {"a", 5, 9}, {"a", 5, 100}}), 1) << "the first on that machine";
  EXPECT_EQ(Short({{"b", 6, 5}, {"a", 5, 9}, {"a", 5, 100}}), 0);
}

}  // namespace
}  // namespace mt::memory
