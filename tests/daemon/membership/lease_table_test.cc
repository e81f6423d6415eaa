// Leases under a clock that the test moves.
#include "daemon/membership/lease_table.h"

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
namespace v1 = megatrain::v1;

TEST(LeaseTable, ADeadNodeStaysDeadUntilItRegisters) {
  base::ManualClock clock;
  LeaseTable leases;
  leases.Start("a", clock.Now());
  leases.DeclareDead("a");
  EXPECT_EQ(leases.StateOf("a"), v1::NODE_DEAD);
  EXPECT_FALSE(leases.Renew("a", clock.Now()));
  clock.Advance(seconds(60));
  EXPECT_TRUE(leases.Tick(clock.Now()).empty());
  leases.Start("a", clock.Now());
  const auto changes = leases.Tick(clock.Now());
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].from, v1::NODE_DEAD);
  EXPECT_EQ(changes[0].to, v1::NODE_READY);
}

TEST(LeaseTable, SuspectAtTenSecondsLostAtThirty) {
  base::ManualClock clock;
  LeaseTable leases;
  leases.Start("a", clock.Now());
  clock.Advance(milliseconds(9'999));
  EXPECT_TRUE(leases.Tick(clock.Now()).empty());
  clock.Advance(milliseconds(1));
  auto changes = leases.Tick(clock.Now());
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].to, v1::NODE_SUSPECT);
  EXPECT_TRUE(leases.Renew("a", clock.Now()));
  changes = leases.Tick(clock.Now());
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].to, v1::NODE_READY);
  clock.Advance(seconds(30));
  changes = leases.Tick(clock.Now());
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].from, v1::NODE_READY);
  EXPECT_EQ(changes[0].to, v1::NODE_LOST);
  EXPECT_FALSE(leases.Renew("a", clock.Now())) << "a lost lease needs a registration";
  EXPECT_TRUE(leases.Tick(clock.Now()).empty()) << "told once";
  leases.Start("a", clock.Now());
  EXPECT_EQ(leases.StateOf("a"), v1::NODE_READY);
  EXPECT_FALSE(leases.Renew("never", clock.Now()));
}

TEST(LeaseTable, ItsLimitsMayBeOthers) {
  base::ManualClock clock;
  LeaseTable leases({.suspect_after = seconds(4), .lost_after = seconds(7)});
  leases.Start("a", clock.Now());
  clock.Advance(milliseconds(3'999));
  EXPECT_TRUE(leases.Tick(clock.Now()).empty());
  clock.Advance(milliseconds(1));
  auto changes = leases.Tick(clock.Now());
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].to, v1::NODE_SUSPECT);
  clock.Advance(milliseconds(2'999));
  EXPECT_TRUE(leases.Tick(clock.Now()).empty());
  clock.Advance(milliseconds(1));
  changes = leases.Tick(clock.Now());
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].to, v1::NODE_LOST);
}

}  // namespace
}  // namespace mt::daemon
