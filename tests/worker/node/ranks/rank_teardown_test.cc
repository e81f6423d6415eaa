// How ranks are ended: which are told to exit, which are killed, and when.
#include "worker/node/ranks/rank_teardown.h"

#include <gmock/gmock.h>

#include "tests/worker/node/ranks/rank_parts_rig.h"

namespace mt::node {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class RankTeardownTest : public RankPartsTest {
 protected:
  RankTeardownTest()
      : teardown_(
            {.loop = &loop_, .launcher = &launcher_, .links = &links_, .abort_kill = seconds(5)},
            &ranks_) {}
  RankTeardown teardown_;
};

TEST_F(RankTeardownTest, AbortTellsThoseThatDoNotLeaveByThemselvesAndThenKills) {
  Rank(0).gone = true;
  Rank(1).fault.exit_code = 74;
  teardown_.Abort("rank 0 failed");
  teardown_.Abort("again");
  EXPECT_THAT(links_.heard[100], IsEmpty());
  EXPECT_THAT(links_.heard[101], IsEmpty());
  ASSERT_EQ(links_.heard[102].size(), 1U);
  EXPECT_EQ(links_.heard[102][0].exit().reason(), "rank 0 failed");
  loop_.Advance(std::chrono::milliseconds(4999));
  EXPECT_THAT(launcher_.killed, IsEmpty());
  EXPECT_FALSE(Rank(2).killed_by_agent);
  loop_.Advance(std::chrono::milliseconds(1));
  EXPECT_THAT(launcher_.killed, ElementsAre(51, 52));
  EXPECT_TRUE(Rank(2).killed_by_agent);
  EXPECT_FALSE(Rank(0).killed_by_agent);
}

TEST_F(RankTeardownTest, ARankThatCallsLateIsToldToo) {
  teardown_.OnAttach(Rank(1));
  EXPECT_THAT(links_.heard[101], IsEmpty());
  Rank(1).link = kNoLink;
  teardown_.Abort("rank 0 failed");
  EXPECT_THAT(links_.heard[101], IsEmpty());
  Rank(1).link = 101;
  teardown_.OnAttach(Rank(1));
  ASSERT_EQ(links_.heard[101].size(), 1U);
  EXPECT_EQ(links_.heard[101][0].exit().reason(), "rank 0 failed");
}

TEST_F(RankTeardownTest, EndTerminatesEachTimeAndNoAbortFollows) {
  Rank(0).gone = true;
  teardown_.End("killed on request");
  teardown_.End("again");
  EXPECT_THAT(launcher_.terminated, ElementsAre(51, 52, 51, 52));
  EXPECT_TRUE(Rank(1).killed_by_agent);
  teardown_.Abort("rank 1 failed");
  EXPECT_THAT(links_.heard[101], IsEmpty());
  EXPECT_EQ(loop_.num_timers(), 0U);
}

TEST_F(RankTeardownTest, AnEndGivesItsReasonToThoseThatCallDuringAnAbort) {
  teardown_.Abort("rank 0 failed");
  teardown_.End("killed on request");
  teardown_.End("again");
  teardown_.OnAttach(Rank(1));
  EXPECT_EQ(links_.heard[101].back().exit().reason(), "killed on request");
}

TEST_F(RankTeardownTest, NothingIsKilledOnceAllHaveEnded) {
  teardown_.Abort("rank 0 failed");
  teardown_.Finish();
  loop_.Advance(seconds(10));
  EXPECT_THAT(launcher_.killed, IsEmpty());
}

}  // namespace
}  // namespace mt::node
