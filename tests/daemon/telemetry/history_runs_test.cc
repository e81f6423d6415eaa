// The runs in a job's history: each epoch's once, with the job's other files wherever these go.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/telemetry/history.h"
#include "daemon/telemetry/run_history.h"
#include "daemon/telemetry/run_parts.h"
#include "tests/daemon/telemetry/history_fixture.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class HistoryRunsTest : public HistoryTest {
 protected:
  void Add(int64_t epoch, const std::string& run, int64_t from_step = 0) {
    v1::EpochRun out;
    out.set_epoch(epoch);
    out.set_run(run);
    out.set_from_step(from_step);
    history_->AppendRun(kJob, out);
  }
  std::vector<std::string> Runs() const { return TextsOf(history_->Query(kJob, {}).runs); }
  static std::vector<std::string> TextsOf(const std::vector<v1::EpochRun>& runs) {
    std::vector<std::string> out;
    out.reserve(runs.size());
    for (const v1::EpochRun& run : runs)
      out.push_back(fmt::format("{} {} {}", run.epoch(), run.run(), run.from_step()));
    return out;
  }
};

TEST_F(HistoryRunsTest, AreThereBeforeAndAfterTheFlushAndARestart) {
  EXPECT_TRUE(Runs().empty()) << "a history from before runs had ids";
  Add(1, "a");
  EXPECT_THAT(Runs(), ElementsAre("1 a 0"));
  AppendRange(1, 10);
  Flush();
  Add(2, "a", 10);
  Add(2, "a", 10);  // a report that comes again
  EXPECT_THAT(Runs(), ElementsAre("1 a 0", "2 a 10"));
  Flush();
  Restart();
  Add(3, "b");
  EXPECT_THAT(Runs(), ElementsAre("1 a 0", "2 a 10", "3 b 0"));
  Add(3, "c", 5);
  EXPECT_THAT(Runs(), ElementsAre("1 a 0", "2 a 10", "3 c 5")) << "the last word on an epoch";
  EXPECT_EQ(All().num_rows(), 10U);
}

TEST_F(HistoryRunsTest, AWalkHasThemOnItsFirstPage) {
  Add(1, "a");
  AppendRange(1, 20);
  const HistoryView first = history_->Walk(kJob, {.limit = 10});
  EXPECT_THAT(TextsOf(first.runs), ElementsAre("1 a 0"));
  ASSERT_GT(first.next_step, 0);
  const HistoryView second = history_->Walk(kJob, {.after_step = first.next_step, .limit = 10});
  EXPECT_EQ(second.rows.num_rows(), 10U);
  EXPECT_TRUE(second.runs.empty());
}

// A run that an earlier version has begun, which counted no attempts.
TEST_F(HistoryRunsTest, AttemptsThatWereNotCountedAreByTheirPlaces) {
  const auto attempts = [&] {
    std::vector<int> out;
    const RunSources run{.run = "a", .job_uid = kJob, .jobs = {{.job_uid = kJob}}};
    for (const RunPart& part : FindRunParts(*history_, run).parts) out.push_back(part.attempt);
    return out;
  };
  Add(1, "a");
  AppendRange(1, 10);
  Add(2, "a", 10);
  AppendRange(11, 20, 2);
  EXPECT_THAT(attempts(), ElementsAre(1, 2));
  v1::EpochRun counted;
  counted.set_epoch(3);
  counted.set_run("a");
  counted.set_from_step(20);
  counted.set_attempt(3);
  history_->AppendRun(kJob, counted);
  AppendRange(21, 25, 3);
  EXPECT_THAT(attempts(), ElementsAre(1, 2, 3));
  counted.set_attempt(2);  // two placements of one job, which were counted as one
  history_->AppendRun(kJob, counted);
  EXPECT_THAT(attempts(), ElementsAre(0, 0, 2));
}

// Attempt 1 trains to step 12, attempt 2 goes on from 8 and trains to 15, attempt 3 from 4 to 6.
class ReplacedStepsTest : public HistoryRunsTest {
 protected:
  void AddAttempt(int attempt, int64_t from_step) {
    v1::EpochRun run;
    run.set_epoch(attempt);
    run.set_run("a");
    run.set_from_step(from_step);
    run.set_attempt(attempt);
    history_->AppendRun(kJob, run);
  }
  static RunSources Sources(int attempt) {
    return {.run = "a", .job_uid = kJob, .jobs = {{.job_uid = kJob}}, .attempt = attempt};
  }
  // The steps, whose losses tell their epochs.
  std::vector<int64_t> StepsOf(int attempt, int points) {
    const HistoryView view = QueryRun(*history_, Sources(attempt), {.points = points});
    std::vector<int64_t> out;
    const HistoryColumn* loss = view.rows.Find("loss");
    for (size_t row = 0; row < view.rows.num_rows(); ++row) {
      out.push_back(view.rows.steps[row]);
      const int64_t epoch = view.rows.epochs[row];
      EXPECT_EQ(loss->last[row], MakeStep(view.rows.steps[row], epoch).loss());
      if (attempt > 0) {
        EXPECT_EQ(epoch, attempt) << view.rows.steps[row];
        EXPECT_EQ(view.attempts[row], attempt) << view.rows.steps[row];
      }
    }
    return out;
  }
  // Likewise, page by page.
  std::vector<int64_t> Walked(int attempt, int limit) {
    std::vector<int64_t> out;
    int64_t after = 0;
    for (int page = 0; page < 20; ++page) {
      const HistoryView view = WalkRun(*history_, Sources(attempt),
                                       {.after_step = after, .limit = limit, .names = {"loss"}});
      EXPECT_LE(view.rows.num_rows(), static_cast<size_t>(limit));
      out.insert(out.end(), view.rows.steps.begin(), view.rows.steps.end());
      after = view.next_step;
      if (after == 0) break;
    }
    return out;
  }
  void ExpectAll(const char* when) {
    for (const int limit : {1, 3, 4, 5, 12}) {
      EXPECT_THAT(Walked(1, limit), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))
          << when << ", pages of " << limit;
    }
    EXPECT_THAT(StepsOf(1, 100), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)) << when;
    EXPECT_THAT(StepsOf(2, 100), ElementsAre(9, 10, 11, 12, 13, 14, 15)) << when;
    EXPECT_THAT(StepsOf(3, 100), ElementsAre(5, 6)) << when;
    EXPECT_THAT(StepsOf(0, 100), ElementsAre(1, 2, 3, 4, 5, 6)) << when << ": the run itself";
    const std::vector<int64_t> few = StepsOf(1, 3);
    ASSERT_FALSE(few.empty());
    EXPECT_LE(few.size(), 3U);
    EXPECT_EQ(few.back(), 12) << when;
  }
};

TEST_F(ReplacedStepsTest, StayUnderTheirAttempt) {
  AddAttempt(1, 0);
  AppendRange(1, 12, 1);
  Flush();
  AddAttempt(2, 8);
  AppendRange(9, 15, 2);
  AddAttempt(3, 4);
  AppendRange(5, 6, 3);
  ExpectAll("in memory");
  Flush();
  ExpectAll("on disk");
  Restart();
  ExpectAll("after a restart, which replays the journal");
  Flush();
  const auto size = fs::file_size(File("job-1.replaced"));
  Restart();
  history_->Close(kJob);
  Flush();
  ExpectAll("in the job's own file");
  EXPECT_EQ(fs::file_size(File("job-1.replaced")), size) << "nothing is kept twice";
  history_->Erase(kJob);
  EXPECT_FALSE(fs::exists(File("job-1.replaced")));
}

// What a frame of the job's file has is kept as what the journal has.
TEST_F(ReplacedStepsTest, OfWholeFramesStay) {
  v1::EpochRun run;
  for (const auto& [epoch, from] : {std::pair{1, 0}, std::pair{2, 10}}) {
    run.set_epoch(epoch);
    run.set_run("a");
    run.set_from_step(from);
    run.set_attempt(epoch);
    history_->AppendRun(kJob, run);
    AppendRange(from + 1, epoch == 1 ? 3'000 : 12, epoch);
    Flush();
  }
  Restart();
  const HistoryView view =
      WalkRun(*history_, {.run = "a", .job_uid = kJob, .jobs = {{.job_uid = kJob}}, .attempt = 1},
              {.limit = 5'000, .names = {"loss"}});
  ASSERT_EQ(view.rows.num_rows(), 3'000U);
  EXPECT_EQ(view.last_step, 3'000);
  for (int64_t step = 1; step <= 3'000; ++step) {
    const auto row = static_cast<size_t>(step - 1);
    ASSERT_EQ(view.rows.steps[row], step);
    ASSERT_EQ(view.rows.Find("loss")->last[row], MakeStep(step, 1).loss());
  }
}

TEST_F(HistoryRunsTest, DamageTakesOneAndNoOther) {
  Add(1, "a");
  Add(2, "b");
  Add(3, "c");
  Flush();
  history_.reset();
  std::string content = base::ReadFile(File("job-1.runs")).value();
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(File("job-1.runs"), content).ok());
  Restart();
  EXPECT_THAT(Runs(), ElementsAre("1 a 0", "3 c 0"));
  Add(4, "d");
  Flush();
  Restart();
  EXPECT_THAT(Runs(), ElementsAre("1 a 0", "3 c 0", "4 d 0"));
}

TEST_F(HistoryRunsTest, GoWithTheJob) {
  Add(1, "a");
  AppendRange(1, 10);
  Flush();
  Restart({});
  EXPECT_TRUE(Runs().empty());
  EXPECT_TRUE(fs::exists(File("unknown/job-1.runs")));
  history_->BringBack(kJob);
  EXPECT_THAT(Runs(), ElementsAre("1 a 0"));
  history_->Erase(kJob);
  EXPECT_TRUE(Runs().empty());
  EXPECT_FALSE(fs::exists(File("job-1.runs")));
  Add(1, "a");
  Flush();
  history_ = std::make_unique<History>(folder_);
  history_->Recover({"job-2"}, {kJob});
  EXPECT_FALSE(fs::exists(File("job-1.runs"))) << "of a job that was deleted";
}

}  // namespace
}  // namespace mt::daemon
