// Steps and evaluations that Flush has called safe survive a crash that loses whatever was not
// synced; what was not flushed yet is there or not, never anything else.
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/common/base/crash_log.h"
#include "tests/daemon/telemetry/history_fixture.h"

namespace mt::daemon {
namespace {

using crash::CrashLog;

class HistoryDurabilityTest : public ::testing::Test {
 protected:
  static constexpr char kJob[] = "job-1";

  void SetUp() override {
    top_ = std::filesystem::canonical(std::filesystem::temp_directory_path()).string() +
           "/mt-durable-history-" + base::RandomHex(6);
    std::filesystem::create_directories(disk());
  }
  void TearDown() override { std::filesystem::remove_all(top_); }
  std::string disk() const { return top_ + "/disk"; }

  // Appends steps first to last and flushes. The log's mark "flushed LAST" follows.
  static void Flush(History* history, int64_t first, int64_t last, CrashLog* log) {
    for (int64_t step = first; step <= last; ++step) {
      ASSERT_TRUE(history->Append(kJob, MakeStep(step)));
    }
    history->AppendEval(kJob, MakeEval(last, 1.5));
    ASSERT_TRUE(history->Flush().ok());
    log->Mark("flushed " + std::to_string(last));
  }

  // What is wrong with the history that a coordinator finds there: at least the steps up to `safe`.
  static std::string Complaint(const std::string& folder, int64_t safe, int64_t appended) {
    History history(folder + "/state/history");
    history.Recover({kJob});
    const HistoryView view = history.Steps(kJob, 0, 1LL << 40, 1'000'000);
    const auto count = static_cast<int64_t>(view.rows.num_rows());
    if (count < safe || count > appended) return "there are " + std::to_string(count) + " steps";
    for (int64_t step = 1; step <= count; ++step) {
      const auto row = static_cast<size_t>(step - 1);
      if (view.rows.steps[row] != step ||
          view.rows.Find("loss")->last[row] != MakeStep(step).loss()) {
        return "step " + std::to_string(step) + " is not what it was";
      }
    }
    bool evaluated = safe == 0;
    for (const v1::EvalRecord& eval : view.evals) evaluated |= eval.step() == safe;
    return evaluated ? "" : "no evaluation of step " + std::to_string(safe);
  }

  // Every crash from the end of the flush of `safe` on until that of `appended`, and right after
  // it.
  void ExpectSafe(const CrashLog& log, int64_t safe, int64_t appended) {
    const size_t from = safe == 0 ? 0 : log.Before("flushed " + std::to_string(safe));
    const size_t to = log.Before("flushed " + std::to_string(appended));
    const std::string first = log.FirstComplaint(
        from, to, top_ + "/after",
        [&](const std::string& left) { return Complaint(left, safe, appended); });
    EXPECT_TRUE(first.empty()) << first;
  }

  std::string top_;
};

TEST_F(HistoryDurabilityTest, WhatAFlushCalledSafeIsSafe) {
  CrashLog log(disk());
  {
    History history(disk() + "/state/history");
    history.Recover({});
    Flush(&history, 1, 3, &log);
    Flush(&history, 4, 5, &log);
    Flush(&history, 6, 6, &log);
  }
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  ExpectSafe(log, 0, 3);
  ExpectSafe(log, 3, 5);
  ExpectSafe(log, 5, 6);
  const size_t end = log.operations().size();
  EXPECT_EQ(log.FirstComplaint(end, end, top_ + "/after",
                               [](const std::string& left) { return Complaint(left, 6, 6); }),
            "");
}

// Full blocks and a job's end move steps from the journal to the job's own file.
TEST_F(HistoryDurabilityTest, StepsThatMoveToTheJobsFileStaySafe) {
  constexpr int64_t kBlock = 1024;
  CrashLog log(disk());
  {
    History history(disk() + "/state/history");
    history.Recover({});
    Flush(&history, 1, kBlock - 1, &log);
    Flush(&history, kBlock, kBlock + 2, &log);
    history.Close(kJob);
    Flush(&history, kBlock + 3, kBlock + 3, &log);
  }
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  ExpectSafe(log, kBlock - 1, kBlock + 2);
  ExpectSafe(log, kBlock + 2, kBlock + 3);
  const size_t end = log.operations().size();
  EXPECT_EQ(log.FirstComplaint(
                end, end, top_ + "/after",
                [](const std::string& left) { return Complaint(left, kBlock + 3, kBlock + 3); }),
            "");
}

TEST_F(HistoryDurabilityTest, AFlushWhoseSyncFailsCallsNothingSafe) {
  int nth = 0;
  for (bool failed = true; failed;) {
    History history(disk() + "/state/history" + std::to_string(nth));
    history.Recover({});
    ASSERT_TRUE(history.Append(kJob, MakeStep(1)));
    history.AppendEval(kJob, MakeEval(1, 1.5));
    CrashLog log(disk());
    log.FailSync(++nth);
    failed = !history.Flush().ok();
    EXPECT_EQ(history.has_unflushed(), failed);
  }
  EXPECT_GT(nth, 4);  // the folder, then evaluations and journal, each with its name
}

}  // namespace
}  // namespace mt::daemon
