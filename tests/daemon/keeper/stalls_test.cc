// Ranks that show no progress: the condition of their job, their events, and when both go.
#include <gmock/gmock.h>

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr char kMark[] = "step 41, microbatch 2, chunk 0: forward; 5 marks enqueued behind it";

class StallsTest : public CoreTest {
 protected:
  // The rank has shown no progress for a minute; `silent`: nor a beat.
  v1::WorkerMessage Stalled(const v1::Job& job, int rank, bool silent = false) {
    v1::WorkerMessage message = RankMessage(job, rank, v1::TRAINING);
    const int64_t since_us = base::ToUnixMicros(clock_.WallNow()) - 60'000'000;
    v1::RankStatus* status = message.mutable_rank_report()->mutable_status();
    status->set_step(40);
    status->mutable_stall()->set_since_us(since_us);
    status->mutable_stall()->set_limit_ms(60'000);
    status->mutable_stall()->set_mark(kMark);
    if (silent) status->mutable_stall()->set_last_beat_us(since_us + 1'000'000);
    return message;
  }
  static std::string ConditionText(const v1::Job& job) {
    for (const v1::Condition& condition : job.conditions()) {
      if (condition.type() == "NoProgress") return condition.message();
    }
    return "";
  }
};

TEST_F(StallsTest, EachRankIsNamedWithStepAndMarkAndTheJobTrainsOn) {
  Worker worker = NewWorker("n1", 2);
  v1::Job job = StartRunning(worker, "demo", 2);
  Report(worker, Stalled(job, 0));
  job = Get(job.uid());
  EXPECT_EQ(ConditionText(job), "1 of 2 ranks stand still");
  EXPECT_EQ(job.ranks(0).stall().mark(), kMark);
  EXPECT_EQ(job.ranks(0).node(), "n1");
  Report(worker, Stalled(job, 1, /*silent=*/true));
  Report(worker, Stalled(job, 1, /*silent=*/true));  // again, after a reconnect
  job = Get(job.uid());
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(ConditionText(job), "2 of 2 ranks stand still; without a beat: rank 1 (dp 1) on n1");
  const auto events = Events("RankStalled");
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].message(),
            std::string("rank 0 (dp 0) on n1: no progress for 60 s; device at ") + kMark);
  EXPECT_EQ(events[0].step(), 40);
  EXPECT_EQ(events[0].node(), "n1");
  EXPECT_THAT(events[1].message(),
              HasSubstr("rank 1 (dp 1) on n1: no progress for 60 s, no beat for 59 s: its process "
                        "is frozen or starved; device last at step 41"));
}

TEST_F(StallsTest, ProgressTakesItBack) {
  Worker worker = NewWorker("n1", 2);
  const v1::Job job = StartRunning(worker, "demo", 2);
  for (int rank = 0; rank < 2; ++rank) Report(worker, Stalled(job, rank));
  Report(worker, RankMessage(job, 0, v1::TRAINING));
  EXPECT_EQ(ConditionText(Get(job.uid())), "1 of 2 ranks stand still");
  EXPECT_TRUE(Events("ProgressResumed").empty());
  Report(worker, RankMessage(job, 1, v1::TRAINING));
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  EXPECT_EQ(Events("ProgressResumed").size(), 1U);
}

TEST_F(StallsTest, ItOutlivesTheCoordinatorAndComesWithTheWorker) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, Stalled(job, 0));
  StartCore();
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "NoProgress");
  v1::HeldAllocation held = Held(job, v1::TRAINING);
  *held.mutable_ranks(0) = Stalled(job, 0).rank_report().status();
  Connect(&worker, 1, {held});
  EXPECT_EQ(Get(job.uid()).ranks(0).stall().mark(), kMark);
  EXPECT_EQ(Events("RankStalled").size(), 1U);
  Connect(&worker, 1, {Held(job, v1::TRAINING)});
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
}

TEST_F(StallsTest, ALostNodeSaysNothingOfItsRanks) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, Stalled(job, 0));
  PassBeating(seconds(32), {});
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "NodeUnreachable");
  EXPECT_FALSE(Get(job.uid()).ranks(0).has_stall());
}

TEST_F(StallsTest, TheEndOfTheJobEndsIt) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, Stalled(job, 0));
  ASSERT_TRUE(Kill(job.uid()).ok());
  v1::WorkerMessage gone = RankMessage(job, 0, v1::DONE);
  gone.mutable_rank_report()->mutable_status()->set_exited(true);
  Report(worker, gone);
  Gone(worker, job);
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  EXPECT_EQ(Events("RankStalled").size(), 1U) << "what was seen stays on record";
}

}  // namespace
}  // namespace mt::daemon
