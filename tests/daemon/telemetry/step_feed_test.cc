// The newest steps of a job in memory and their readers, under a clock that the test moves.
#include "daemon/telemetry/step_feed.h"

#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
namespace v1 = megatrain::v1;

v1::StepRecord Step(int64_t epoch, int64_t step) {
  v1::StepRecord record;
  record.set_epoch(epoch);
  record.set_step(step);
  return record;
}

TEST(StepFeed, EachStepOnce) {
  StepFeed feed;
  base::ManualClock clock;
  EXPECT_TRUE(feed.AddStep(Step(1, 1), clock.Now()));
  EXPECT_TRUE(feed.AddStep(Step(1, 2), clock.Now()));
  EXPECT_FALSE(feed.AddStep(Step(1, 2), clock.Now()));
  EXPECT_FALSE(feed.AddStep(Step(1, 1), clock.Now()));
  EXPECT_TRUE(feed.AddStep(Step(2, 1), clock.Now())) << "a new epoch goes back";
  EXPECT_FALSE(feed.AddStep(Step(1, 3), clock.Now()));
  feed.ResumeAfter(3, 10);
  EXPECT_FALSE(feed.AddStep(Step(3, 10), clock.Now()));
  EXPECT_TRUE(feed.AddStep(Step(3, 11), clock.Now()));
}

TEST(StepFeed, HistoryThenLive) {
  StepFeed feed;
  base::ManualClock clock;
  for (int i = 1; i <= 5; ++i) feed.AddStep(Step(1, i), clock.Now());
  const auto stream = feed.Subscribe(3, seconds(0));
  feed.AddStep(Step(1, 6), clock.Now());
  feed.Close(OkStatus());
  std::vector<int64_t> seen;
  for (;;) {
    const auto taken = stream->Take(nullptr);
    if (!taken.item.has_value()) {
      EXPECT_TRUE(taken.ended);
      break;
    }
    seen.push_back(taken.item->step->step());
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{4, 5, 6}));
}

TEST(StepFeed, SamplesGoToThoseWhoReadNow) {
  StepFeed feed;
  base::ManualClock clock;
  feed.AddStep(Step(1, 1), clock.Now());
  const auto now = feed.Subscribe(1, seconds(0));
  v1::EvalRecord eval;
  eval.set_step(1);
  eval.add_samples()->set_text("text");
  feed.AddEval(eval);
  const auto later = feed.Subscribe(0, seconds(0));
  EXPECT_EQ(now->Take(nullptr).item->eval->samples_size(), 1);
  EXPECT_EQ(later->Take(nullptr).item->step->step(), 1);
  const auto kept = later->Take(nullptr);
  EXPECT_EQ(kept.item->eval->step(), 1);
  EXPECT_EQ(kept.item->eval->samples_size(), 0);
}

TEST(StepFeed, SlowReaderLosesTheOldestAndIsTold) {
  StepFeed feed;
  base::ManualClock clock;
  const auto stream = feed.Subscribe(0, seconds(0));
  for (int i = 1; i <= 5'000; ++i) feed.AddStep(Step(1, i), clock.Now());
  EXPECT_EQ(stream->num_queued(), 1'024u);
  EXPECT_EQ(feed.num_steps(), kStepsKept);
  const auto taken = stream->Take(nullptr);
  EXPECT_EQ(taken.dropped, 5'000 - 1'024);
  EXPECT_EQ(taken.item->step->step(), 5'000 - 1'023);
  EXPECT_EQ(stream->Take(nullptr).dropped, 0);
}

TEST(StepFeed, ThinsLiveSteps) {
  StepFeed feed;
  base::ManualClock clock;
  const auto stream = feed.Subscribe(0, milliseconds(100));
  for (int i = 1; i <= 100; ++i) {
    feed.AddStep(Step(1, i), clock.Now());
    clock.Advance(milliseconds(10));
  }
  EXPECT_EQ(stream->num_queued(), 10u);
}

}  // namespace
}  // namespace mt::daemon
