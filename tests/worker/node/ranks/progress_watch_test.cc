// What counts as progress of a rank, and the time limit of each state.
#include "worker/node/ranks/progress_watch.h"

#include <limits>

#include <gtest/gtest.h>

#include "megatrain/v1/rank.pb.h"

namespace mt::node {
namespace {

using megatrain::v1::RankBeat;
using megatrain::v1::RankState;
using std::chrono::milliseconds;
using std::chrono::seconds;

class ProgressWatchTest : public testing::Test {
 protected:
  // Sends beats without progress every second for this long.
  void BeatFor(seconds time) {
    for (seconds passed{0}; passed < time; passed += seconds(1)) {
      now_ += seconds(1);
      watch_.OnBeat(beat_, now_);
    }
  }
  void Steps(int count, double each) {
    RankBeat beat = beat_;
    for (int i = 0; i < count; ++i) beat.mutable_telemetry()->add_recent_step_seconds(each);
    watch_.OnBeat(beat, now_);
  }
  void Enter(RankState state) { watch_.OnState(state, now_); }
  bool Stalled() const { return watch_.Look(now_).has_value(); }

  base::MonotonicTime now_{seconds(1'000)};
  RankBeat beat_;
  ProgressWatch watch_{ProgressLimits{}, now_};
};

TEST_F(ProgressWatchTest, ATrainingRankHasAMinute) {
  Enter(RankState::TRAINING);
  Steps(5, 0.1);
  BeatFor(seconds(59));
  EXPECT_FALSE(Stalled());
  BeatFor(seconds(1));
  const auto stall = watch_.Look(now_);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(now_ - stall->since, seconds(60));
  EXPECT_EQ(stall->limit, seconds(60));
  EXPECT_FALSE(stall->last_beat.has_value()) << "it beats";
}

TEST_F(ProgressWatchTest, TheLimitOfBeatsMayBeAnother) {
  watch_ = ProgressWatch({.frozen = seconds(4)}, now_);
  Enter(RankState::TRAINING);
  Steps(5, 0.1);
  now_ += milliseconds(3'999);
  EXPECT_FALSE(Stalled());
  now_ += milliseconds(1);
  const auto stall = watch_.Look(now_);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->limit, seconds(4));
  EXPECT_TRUE(stall->last_beat.has_value());
}

TEST_F(ProgressWatchTest, AStepABatchAByteOrANewMarkIsProgress) {
  Enter(RankState::TRAINING);
  Steps(5, 0.1);
  BeatFor(seconds(59));
  beat_.set_progress(1);
  BeatFor(seconds(60));
  EXPECT_FALSE(Stalled());
  beat_.mutable_mark()->set_text("step 7, microbatch 0, chunk 0: forward; 3 marks enqueued");
  BeatFor(seconds(60));
  EXPECT_FALSE(Stalled());
  BeatFor(seconds(1));
  EXPECT_TRUE(Stalled());
  EXPECT_EQ(watch_.mark(), "step 7, microbatch 0, chunk 0: forward; 3 marks enqueued");
  beat_.mutable_mark()->set_text("end of step 7; 0 marks enqueued behind it");
  BeatFor(seconds(1));
  EXPECT_FALSE(Stalled());
}

TEST_F(ProgressWatchTest, SlowStepsAndTheFirstOnesHaveMore) {
  Enter(RankState::TRAINING);
  Steps(4, 20);
  BeatFor(seconds(599));
  EXPECT_FALSE(Stalled()) << "one of the first five";
  BeatFor(seconds(1));
  EXPECT_TRUE(Stalled());
  Steps(196, 20);
  beat_.set_progress(1);
  BeatFor(seconds(100));
  EXPECT_FALSE(Stalled());
  BeatFor(seconds(1));
  EXPECT_EQ(watch_.Look(now_)->limit, seconds(100)) << "5 times the p99";
  // One slow step of a thousand does not change the limit, many do.
  Steps(1, 1'000);
  EXPECT_EQ(watch_.Look(now_)->limit, seconds(100));
  Steps(600, 1);
  EXPECT_EQ(watch_.Look(now_)->limit, seconds(60)) << "of the newest steps";
}

TEST_F(ProgressWatchTest, ASaveHasMore) {
  Enter(RankState::TRAINING);
  Steps(5, 0.1);
  beat_.mutable_mark()->set_phase("ckpt");
  BeatFor(seconds(899));
  EXPECT_FALSE(Stalled());
  BeatFor(seconds(1));
  EXPECT_TRUE(Stalled());
}

TEST_F(ProgressWatchTest, EachStateHasItsOwnTime) {
  BeatFor(seconds(599));
  EXPECT_FALSE(Stalled());
  BeatFor(seconds(1));
  EXPECT_TRUE(Stalled()) << "spawned ten minutes ago";
  Enter(RankState::LOADING);
  BeatFor(seconds(899));
  EXPECT_FALSE(Stalled());
  BeatFor(seconds(1));
  EXPECT_TRUE(Stalled());
  for (const RankState state : {RankState::HELD, RankState::EXITING, RankState::UNKNOWN}) {
    Enter(state);
    BeatFor(seconds(3'600));
    EXPECT_FALSE(Stalled()) << state;
  }
}

TEST_F(ProgressWatchTest, AFrozenProcessIsTold) {
  Enter(RankState::TRAINING);
  Steps(5, 0.1);
  const base::MonotonicTime last = now_;
  now_ += seconds(60);
  const auto stall = watch_.Look(now_);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->last_beat, last);
  watch_.OnBeat(beat_, now_);
  ASSERT_TRUE(Stalled()) << "it beats again, and has not moved";
  EXPECT_FALSE(watch_.Look(now_)->last_beat.has_value());
}

TEST_F(ProgressWatchTest, ASilentRankIsToldAfterTenSecondsWhateverItsLimitIs) {
  EXPECT_FALSE(watch_.SilentFrom().has_value()) << "it has not called yet";
  now_ += seconds(100);
  EXPECT_FALSE(Stalled());
  for (const RankState state :
       {RankState::CONNECTED, RankState::LOADING, RankState::TRAINING, RankState::HELD}) {
    Enter(state);
    BeatFor(seconds(1));
    EXPECT_EQ(watch_.SilentFrom(), now_ + seconds(10)) << state;
    const base::MonotonicTime last = now_;
    now_ += milliseconds(9'999);
    EXPECT_FALSE(Stalled()) << state;
    now_ += milliseconds(1);
    const auto stall = watch_.Look(now_);
    ASSERT_TRUE(stall.has_value()) << state;
    EXPECT_EQ(stall->last_beat, last);
    EXPECT_EQ(stall->limit, seconds(10));
    BeatFor(seconds(1));
    EXPECT_FALSE(Stalled()) << state;
  }
  // One that leaves says no more.
  Enter(RankState::EXITING);
  EXPECT_FALSE(watch_.SilentFrom().has_value());
  now_ += seconds(100);
  EXPECT_FALSE(Stalled());
}

TEST_F(ProgressWatchTest, WhatTheWatchingProcessSleptThroughDoesNotCount) {
  Enter(RankState::TRAINING);
  Steps(5, 0.1);
  now_ += seconds(3'600);
  watch_.Forgive(seconds(3'595));
  EXPECT_FALSE(Stalled());
  now_ += seconds(5);
  const auto stall = watch_.Look(now_);
  ASSERT_TRUE(stall.has_value()) << "ten seconds of its own";
  EXPECT_EQ(now_ - stall->since, seconds(10));
  EXPECT_EQ(now_ - *stall->last_beat, seconds(10));
}

TEST_F(ProgressWatchTest, WhatARankInventsMakesNoLimit) {
  Enter(RankState::TRAINING);
  Steps(5, std::numeric_limits<double>::quiet_NaN());
  Steps(5, -1);
  Steps(5, 0.1);
  EXPECT_FALSE(Stalled());
  BeatFor(seconds(60));
  EXPECT_EQ(watch_.Look(now_)->limit, seconds(60));
  Steps(500, 1e300);
  EXPECT_FALSE(Stalled());
}

}  // namespace
}  // namespace mt::node
