// The ranks of one allocation: how they are found, and which calls may attach to them.
#include "worker/node/ranks/rank_set.h"

#include <gmock/gmock.h>

#include "tests/worker/node/ranks/rank_parts_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::RankHello;
using megatrain::v1::RankState;
using testing::ElementsAre;

RankHello Hello(int rank, const std::string& token) {
  RankHello hello;
  hello.set_rank(rank);
  hello.set_token(token);
  hello.set_pid(77);
  return hello;
}

TEST(RankSet, FindsARankByEachOfItsNames) {
  RankSet ranks(RecordOf(2), "/state");
  EXPECT_EQ(ranks.Find(1)->slot, 11);
  EXPECT_EQ(ranks.Find(1)->folder, "/state/job-1-e0003/rank-00001");
  EXPECT_EQ(ranks.Find(2), nullptr);
  ranks.Find(1)->launch = 7;
  ranks.Find(1)->link = 8;
  EXPECT_EQ(ranks.FindByLaunch(7), ranks.Find(1));
  EXPECT_EQ(ranks.FindByLink(8), ranks.Find(1));
  EXPECT_EQ(ranks.FindByLink(kNoLink), nullptr);  // although rank 0 has no link
}

TEST(RankSet, KnowsSlotsAndGpus) {
  auto record = RecordOf(2);
  record.mutable_ranks(1)->set_gpu("GPU-b");
  RankSet ranks(record, "/state");
  EXPECT_TRUE(ranks.UsesSlot(11));
  EXPECT_FALSE(ranks.UsesSlot(12));
  EXPECT_TRUE(ranks.UsesGpu("GPU-b"));
  EXPECT_FALSE(ranks.UsesGpu("GPU-a"));
  EXPECT_THAT(ranks.Gpus(), ElementsAre("GPU-b"));
}

TEST(RankSet, IsGoneWithItsLastRank) {
  RankSet ranks(RecordOf(2), "/state");
  ranks.Find(0)->gone = true;
  EXPECT_FALSE(ranks.AllGone());
  ranks.Find(1)->gone = true;
  EXPECT_TRUE(ranks.AllGone());
  EXPECT_TRUE(RankSet(RecordOf(0), "/state").AllGone());
}

TEST(RankSet, AttachesByTokenOnly) {
  auto record = RecordOf(2);
  record.mutable_ranks(1)->clear_token();
  RankSet ranks(record, "/state");
  EXPECT_EQ(base::Message(ranks.Attach(5, Hello(0, "token-1")).status()),
            "wrong token for rank 0 of job job-1");
  EXPECT_TRUE(absl::IsFailedPrecondition(ranks.Attach(5, Hello(1, "")).status()));
  EXPECT_EQ(base::Message(ranks.Attach(5, Hello(4, "token-4")).status()),
            "rank 4 of job job-1 epoch 3 does not run on this node");
  EXPECT_EQ(ranks.FindByLink(5), nullptr);
  ASSERT_TRUE(ranks.Attach(5, Hello(0, "token-0")).ok());
  EXPECT_EQ(ranks.FindByLink(5), ranks.Find(0));
  EXPECT_EQ(ranks.Find(0)->pid, 77);
  ranks.Find(0)->gone = true;
  EXPECT_FALSE(ranks.Attach(6, Hello(0, "token-0")).ok());
}

TEST(RankSet, AHelloWithoutAStateKeepsWhatIsKnownFromTheRank) {
  RankSet ranks(RecordOf(1), "/state");
  LocalRank& rank = *ranks.Find(0);
  ASSERT_TRUE(ranks.Attach(5, Hello(0, "token-0")).ok());
  EXPECT_EQ(rank.state, RankState::CONNECTED);
  rank.state = RankState::TRAINING;
  rank.step = 9;
  RankHello hello = Hello(0, "token-0");
  hello.set_step(4);  // a step never goes back
  ASSERT_TRUE(ranks.Attach(6, hello).ok());
  EXPECT_EQ(rank.state, RankState::TRAINING);
  EXPECT_EQ(rank.step, 9);
  hello.set_state(RankState::HELD);
  ASSERT_TRUE(ranks.Attach(7, hello).ok());
  EXPECT_EQ(rank.state, RankState::HELD);
}

}  // namespace
}  // namespace mt::node
