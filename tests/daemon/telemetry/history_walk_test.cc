// Every step of a range, page by page, and what a reader is told of a rollback in between.
#include <gtest/gtest.h>

#include "common/control/numbers.h"
#include "daemon/telemetry/history_view.h"
#include "tests/daemon/telemetry/history_fixture.h"

namespace mt::daemon {
namespace {

class HistoryWalkTest : public HistoryTest {
 protected:
  struct Whole {
    std::vector<int64_t> steps;
    std::vector<int64_t> eval_steps;
    std::vector<size_t> pages;
  };
  Whole WalkAll(HistoryWalk walk) {
    Whole out;
    do {
      const HistoryView page = history_->Walk(kJob, walk);
      EXPECT_EQ(page.rows.level, 0);
      out.steps.insert(out.steps.end(), page.rows.steps.begin(), page.rows.steps.end());
      for (const v1::EvalRecord& eval : page.evals) out.eval_steps.push_back(eval.step());
      out.pages.push_back(page.rows.num_rows());
      walk.after_step = page.next_step;
    } while (walk.after_step > 0 && out.pages.size() < 100);
    return out;
  }
  static std::vector<int64_t> Steps(int64_t first, int64_t last) {
    std::vector<int64_t> out;
    for (int64_t step = first; step <= last; ++step) out.push_back(step);
    return out;
  }
};

TEST_F(HistoryWalkTest, GivesEveryStepOnce) {
  AppendRange(1, 25'000);
  for (const int64_t step : {1, 10'000, 10'001, 25'000, 25'001})
    history_->AppendEval(kJob, MakeEval(step, 2.5));
  Flush();
  const Whole whole = WalkAll({.limit = 10'000, .names = {"loss"}});
  EXPECT_EQ(whole.steps, Steps(1, 25'000));
  EXPECT_EQ(whole.pages, (std::vector<size_t>{10'000, 10'000, 5'000}));
  EXPECT_EQ(whole.eval_steps, (std::vector<int64_t>{1, 10'000, 10'001, 25'000, 25'001}));
  // More than may be asked for is as many as may; a page that ends with the range is the last.
  EXPECT_EQ(WalkAll({.limit = 1 << 30}).pages[0], 10'000U);
  EXPECT_EQ(WalkAll({.to_step = 20'000, .limit = 10'000}).pages,
            (std::vector<size_t>{10'000, 10'000}));
  // An ended job is read from its file.
  history_->Close(kJob);
  Flush();
  EXPECT_EQ(WalkAll({.limit = 7'777}).steps, Steps(1, 25'000));
}

TEST_F(HistoryWalkTest, KeepsToTheRange) {
  AppendRange(1, 5'000);
  Flush();
  EXPECT_EQ(WalkAll({.from_step = 100, .to_step = 4'100, .limit = 1'000}).steps, Steps(100, 4'100));
  EXPECT_EQ(WalkAll({.from_step = 4'990, .limit = 3}).steps, Steps(4'990, 5'000));
  EXPECT_EQ(WalkAll({.since_us = MakeStep(4'000).time_us(), .limit = 300}).steps,
            Steps(4'000, 5'000));
  EXPECT_TRUE(WalkAll({.from_step = 6'000, .limit = 10}).steps.empty());
  EXPECT_EQ(history_->Walk("nobody", {.limit = 10}).next_step, 0);
}

// 64 columns: a page is as long as a message is, and the walk goes on behind it.
TEST_F(HistoryWalkTest, APageFitsIntoAMessage) {
  for (int64_t step = 1; step <= 10'000; ++step) {
    v1::StepRecord record = MakeStep(step);
    for (int i = 0; i < 64; ++i) (*record.mutable_phase_seconds())[fmt::format("p{}", i)] = i;
    ASSERT_TRUE(history_->Append(kJob, record));
  }
  Flush();
  const Whole whole = WalkAll({.limit = 10'000});
  EXPECT_EQ(whole.steps, Steps(1, 10'000));
  ASSERT_EQ(whole.pages.size(), 2U);
  EXPECT_LT(whole.pages[0] * (64 * 8 + 30), static_cast<size_t>(control::kMaxMessageBytes));
  EXPECT_GT(whole.pages[0] * (64 * 8 + 30), static_cast<size_t>(control::kMaxMessageBytes) * 4 / 5);
}

// What api.proto promises of `points`: fewer steps are returned one by one.
TEST_F(HistoryWalkTest, FewerStepsThanPointsAreNotThinned) {
  AppendRange(1, 25'000);
  Flush();
  const HistoryView view =
      history_->Query(kJob, {.from_step = 1, .to_step = 5'000, .points = 10'000});
  EXPECT_EQ(view.rows.level, 0);
  EXPECT_EQ(view.rows.steps, Steps(1, 5'000));
  EXPECT_EQ(history_->Query(kJob, {.to_step = 10'000, .points = 10'000}).rows.steps,
            Steps(1, 10'000));
  // Buckets have three numbers for one: a long run still fits into a message.
  const HistoryView thinned = history_->Query(kJob, {.points = 10'000});
  EXPECT_GT(thinned.rows.level, 0);
  EXPECT_LE(std::ssize(thinned.rows.steps), HistoryPointLimit(thinned.rows.columns.size(), 1));
}

TEST_F(HistoryWalkTest, TellsTheNewestEpochAndWhatItBeganBehind) {
  const auto expect = [&](int64_t epoch, int64_t base, const char* what) {
    const HistoryView page = history_->Walk(kJob, {.limit = 1});
    EXPECT_EQ(page.epoch, epoch) << what;
    EXPECT_EQ(page.epoch_base, base) << what;
    const HistoryView view = history_->Query(kJob, {});
    EXPECT_EQ(view.epoch, epoch) << what;
    EXPECT_EQ(view.epoch_base, base) << what;
  };
  expect(0, 0, "nothing");
  AppendRange(1, 3'000);
  expect(1, 0, "one epoch");
  AppendRange(2'501, 2'600, 2);
  expect(2, 2'500, "a rollback in memory");
  Flush();
  Restart();
  expect(2, 2'500, "from the journal");
  AppendRange(2'601, 4'000, 2);
  Flush();
  AppendRange(4'001, 4'010, 3);
  expect(3, 4'000, "an epoch that goes on where the last one ended");
  AppendRange(1'501, 1'600, 4);
  expect(4, 1'500, "a rollback behind what is on disk");
  history_->Close(kJob);
  Flush();
  expect(4, 1'500, "from the file, in the middle of a block");
  Restart();
  expect(4, 1'500, "after a restart");
  AppendRange(1'601, 5'000, 4);
  history_->Close(kJob);
  Flush();
  expect(4, 1'500, "an epoch of several blocks");
}

}  // namespace
}  // namespace mt::daemon
