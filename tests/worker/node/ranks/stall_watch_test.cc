// When a rank is reported to stall and to go on, and that ranks which are being ended are not.
#include "worker/node/ranks/stall_watch.h"

#include "tests/worker/node/ranks/rank_parts_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::RankState;
using std::chrono::milliseconds;
using std::chrono::seconds;

class StallWatchTest : public RankPartsTest {
 protected:
  StallWatchTest()
      : watch_({.loop = &loop_,
                .clock = &clock_,
                .interval = seconds(1),
                .limits = {.comm_init = seconds(600), .load = seconds(30)},
                .job_uid = "job-1",
                .epoch = 3,
                .changed = [this](const LocalRank& rank) { changed_.push_back(rank.rank); }},
               &ranks_) {}
  void SetState(int rank, RankState state) {
    Rank(rank).state = state;
    watch_.OnState(Rank(rank));
  }
  bool Stalled(int rank) {
    megatrain::v1::RankStatus status;
    watch_.Describe(Rank(rank), &status);
    return status.has_stall();
  }
  void Beat(int rank, int64_t progress, const std::string& mark) {
    megatrain::v1::RankBeat beat;
    beat.set_progress(progress);
    beat.mutable_mark()->set_text(mark);
    watch_.OnBeat(Rank(rank), beat);
  }

  std::vector<int> changed_;
  StallWatch watch_;
};

TEST_F(StallWatchTest, ReportsOnceWhenARankStallsAndOnceWhenItGoesOn) {
  watch_.Start();
  SetState(1, RankState::LOADING);
  Beat(1, 1, "step 0");
  for (int i = 0; i < 29; ++i) {
    loop_.Advance(seconds(1));
    Beat(1, 1, "step 0");
  }
  EXPECT_TRUE(changed_.empty());
  EXPECT_EQ(watch_.WhereItStood(Rank(1)), "");
  for (int i = 0; i < 8; ++i) {
    loop_.Advance(seconds(1));
    Beat(1, 1, "step 0");
  }
  EXPECT_EQ(changed_, std::vector<int>{1});
  EXPECT_TRUE(Stalled(1));
  EXPECT_FALSE(Stalled(0));
  EXPECT_EQ(watch_.WhereItStood(Rank(1)),
            "; it had shown no progress for 37 s, its device at step 0");
  Beat(1, 2, "step 1");
  EXPECT_EQ(changed_, (std::vector<int>{1, 1}));
  EXPECT_FALSE(Stalled(1));
}

TEST_F(StallWatchTest, ARankWithoutABeatIsReportedAtTenSecondsAndOnce) {
  // A look every 60 s would come too late.
  StallWatch watch({.loop = &loop_,
                    .clock = &clock_,
                    .interval = seconds(60),
                    .limits = {.comm_init = seconds(3'600)},
                    .job_uid = "job-1",
                    .epoch = 3,
                    .changed = [this](const LocalRank& rank) { changed_.push_back(rank.rank); }},
                   &ranks_);
  Rank(1).state = RankState::TRAINING;
  watch.OnState(Rank(1));
  watch.OnBeat(Rank(1), {});
  watch.Start();
  loop_.Advance(milliseconds(9'999));
  EXPECT_TRUE(changed_.empty());
  loop_.Advance(milliseconds(1));
  EXPECT_EQ(changed_, std::vector<int>{1});
  megatrain::v1::RankStatus status;
  watch.Describe(Rank(1), &status);
  EXPECT_NE(status.stall().last_beat_us(), 0);
  loop_.Advance(seconds(900));  // its limit of progress is over, too: no news
  EXPECT_EQ(changed_, std::vector<int>{1});
  watch.OnBeat(Rank(1), {});
  EXPECT_EQ(changed_, (std::vector<int>{1, 1})) << "it beats, and has not moved";
}

TEST_F(StallWatchTest, AnAgentThatStoodStillBlamesNoRank) {
  watch_.Start();
  SetState(1, RankState::TRAINING);
  Beat(1, 1, "step 0");
  loop_.Advance(seconds(3));
  clock_.Advance(seconds(3'600));  // no timer ran, no beat was read
  loop_.Advance(seconds(1));
  EXPECT_TRUE(changed_.empty());
  loop_.Advance(seconds(8));
  EXPECT_EQ(changed_, std::vector<int>{1}) << "of its own silence";
}

TEST_F(StallWatchTest, ANewStateEndsAStallWithoutAReportOfItsOwn) {
  watch_.Start();
  SetState(1, RankState::LOADING);
  loop_.Advance(seconds(31));
  EXPECT_TRUE(Stalled(1));
  SetState(1, RankState::HELD);
  EXPECT_FALSE(Stalled(1));
  EXPECT_EQ(changed_, std::vector<int>{1});
}

TEST_F(StallWatchTest, NothingIsFoundOnceStopped) {
  watch_.Start();
  SetState(1, RankState::LOADING);
  watch_.Stop();
  loop_.Advance(seconds(100));
  watch_.Start();
  loop_.Advance(seconds(100));
  EXPECT_TRUE(changed_.empty());
  EXPECT_EQ(loop_.num_timers(), 0U);
}

TEST_F(StallWatchTest, AStallThatWasReportedStaysWhileTheRankIsEnded) {
  watch_.Start();
  SetState(1, RankState::LOADING);
  loop_.Advance(seconds(31));
  watch_.Stop();
  Beat(1, 2, "step 1");
  EXPECT_TRUE(Stalled(1));
  Rank(1).gone = true;
  EXPECT_FALSE(Stalled(1));
  EXPECT_EQ(changed_, std::vector<int>{1});
}

TEST_F(StallWatchTest, OnlyAKilledRankNeedsItsDevicesPlace) {
  Beat(2, 1, "step 12");
  EXPECT_EQ(watch_.WhereItStood(Rank(2)), "");
  Rank(2).gone = true;
  EXPECT_EQ(watch_.WhereItStood(Rank(2)), "; device last at step 12") << "nobody saw its end";
  Rank(2).exit.known = true;
  EXPECT_EQ(watch_.WhereItStood(Rank(2)), "");
  Rank(2).exit.signal = 9;
  EXPECT_EQ(watch_.WhereItStood(Rank(2)), "; device last at step 12");
}

}  // namespace
}  // namespace mt::node
