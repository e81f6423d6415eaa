// The history of steps: every step once, through restarts, rollbacks and damage; views read one
// level; memory stays bounded.
#include "daemon/telemetry/history.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/report/step_metrics.h"
#include "daemon/telemetry/history_frame.h"
#include "daemon/telemetry/history_view.h"
#include "megatrain/v1/metric.pb.h"
#include "tests/daemon/telemetry/history_fixture.h"
#include "tests/paths.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;

TEST_F(HistoryTest, KeepsEveryValueOfEveryStep) {
  AppendRange(1, 2'500);
  Flush();
  Restart();
  const HistoryTable rows = All();
  ASSERT_EQ(rows.num_rows(), 2'500U);
  for (const int64_t step : {1, 1'024, 1'025, 2'499, 2'500}) {
    const v1::StepRecord got = rows.ToStep(static_cast<size_t>(step - 1));
    // Protobuf maps have no order on the wire: compare their text, which is sorted.
    EXPECT_EQ(got.DebugString(), MakeStep(step).DebugString());
  }
  ExpectWhole(2'500);
}

// FORMAT.md's table is what StepRecord declares, in the order of the columns of a written step.
TEST_F(HistoryTest, TheTableOfColumnsIsThatOfTheFormat) {
  const char* const kScopes[] = {"job", "mean over ranks", "rank 0", "slot"};
  std::string declared;
  for (const std::string_view name : HistoryScalarNames()) {
    const v1::Metric& metric = report::FindStepMetric(name)->declared();
    declared += fmt::format("| `{}` | {} | {} |\n", name, metric.unit(), kScopes[metric.scope()]);
  }
  const std::string page = base::ReadFile(MT_SOURCE_DIR "/daemon/telemetry/FORMAT.md").value();
  EXPECT_NE(page.find("| column | unit | of |\n|---|---|---|\n" + declared + "\n"),
            std::string::npos)
      << declared;
  HistoryTable table;
  table.AppendStep(MakeStep(1));
  for (size_t i = 0; i < HistoryScalarNames().size(); ++i)
    EXPECT_EQ(table.columns[i].name, HistoryScalarNames()[i]);
}

// A worker of before `launch_seconds`, then one of now, in one table.
TEST_F(HistoryTest, AMetricThatIsNotReportedHasNoColumnUntilItIs) {
  HistoryTable table;
  v1::StepRecord before = MakeStep(1);
  before.clear_launch_seconds();
  table.AppendStep(before);
  EXPECT_EQ(table.Find("launch_seconds"), nullptr);
  table.AppendStep(MakeStep(2));
  EXPECT_EQ(table.ToStep(0).DebugString(), before.DebugString());
  EXPECT_EQ(table.ToStep(1).DebugString(), MakeStep(2).DebugString());
}

TEST_F(HistoryTest, WhatIsFlushedSurvivesAKillAtAnyStep) {
  for (int64_t step = 1; step <= 3'000; step += 37) {
    AppendRange(step, std::min<int64_t>(step + 36, 3'000));
    Flush();
    if (step % 5 == 0) Restart();
  }
  Restart();
  ExpectWhole(3'000);
  AppendRange(3'001, 3'010);  // not flushed
  Restart();
  ExpectWhole(3'000);
}

TEST_F(HistoryTest, AStepThatComesAgainIsHeldOnce) {
  AppendRange(1, 100);
  Flush();
  Restart();
  for (int64_t step = 50; step <= 100; ++step) EXPECT_FALSE(history_->Append(kJob, MakeStep(step)));
  AppendRange(101, 1'500);
  Flush();
  for (int64_t step = 1; step <= 1'500; ++step) {
    EXPECT_FALSE(history_->Append(kJob, MakeStep(step))) << "also those in a frame";
  }
  EXPECT_FALSE(history_->Append(kJob, MakeStep(0)));
  ExpectWhole(1'500);
}

TEST_F(HistoryTest, AfterARollbackTheLaterEpochCounts) {
  AppendRange(1, 5'000);
  Flush();
  AppendRange(2'900, 3'500, 2);  // into frames on disk
  EXPECT_FALSE(history_->Append(kJob, MakeStep(5'001, 1))) << "late news of the old epoch";
  ExpectWhole(3'500, 2'900);
  Flush();
  Restart();
  ExpectWhole(3'500, 2'900);
  ExpectPyramid(1, 100);
  AppendRange(3'501, 9'000, 2);
  Flush();
  Restart();
  ExpectWhole(9'000, 2'900);
  ExpectPyramid(2, 100);
}

TEST_F(HistoryTest, ARollbackWithinWhatIsInMemory) {
  AppendRange(1, 700);
  Flush();
  AppendRange(601, 650, 2);
  Flush();
  ExpectWhole(650, 601);
  Restart();
  ExpectWhole(650, 601);
  AppendRange(651, 1'400, 2);
  Flush();
  Restart();
  ExpectWhole(1'400, 601);
  ExpectPyramid(1, 50);
}

TEST_F(HistoryTest, ThePyramidIsTheStepsItself) {
  AppendRange(1, 20'011);
  Flush();
  ExpectPyramid(1, 400);  // 1,251 buckets, merged by four
  ExpectPyramid(2, 100);  // 79 buckets of 256
  ExpectPyramid(3, 1);    // 5 buckets of 4,096 in one point
  Restart();
  ExpectPyramid(1, 400);
  ExpectPyramid(2, 100);
  ExpectPyramid(3, 1);
}

TEST_F(HistoryTest, RangesNamesAndPoints) {
  AppendRange(1, 10'000);
  history_->AppendEval(kJob, MakeEval(100, 5.0));
  history_->AppendEval(kJob, MakeEval(2'000, 4.0));
  Flush();
  HistoryView view = history_->Query(kJob, {.from_step = 1'990, .to_step = 2'009});
  EXPECT_EQ(view.rows.level, 0);
  EXPECT_EQ(view.rows.steps.front(), 1'990);
  EXPECT_EQ(view.rows.steps.back(), 2'009);
  EXPECT_EQ(view.rows.num_rows(), 20U);
  EXPECT_EQ(view.first_step, 1);
  EXPECT_EQ(view.last_step, 10'000);
  ASSERT_EQ(view.evals.size(), 1U);
  EXPECT_EQ(view.evals[0].loss(), 4.0);
  view = history_->Query(kJob, {.names = {"loss", "phase_seconds/data"}});
  EXPECT_EQ(view.rows.columns.size(), 2U);
  EXPECT_LE(view.rows.num_rows(), 1'000U);
  EXPECT_GE(view.rows.num_rows(), 250U);
  view = history_->Query(kJob, {.since_us = MakeStep(9'900).time_us()});
  EXPECT_EQ(view.rows.steps.front(), 9'900);
  EXPECT_EQ(view.rows.num_rows(), 101U);
  view = history_->Query(kJob, {.from_step = 20'000});
  EXPECT_TRUE(view.rows.empty());
  view = history_->Query("nobody", {});
  EXPECT_TRUE(view.rows.empty());
  EXPECT_EQ(view.last_step, 0);
}

TEST_F(HistoryTest, ColumnsMayComeLateAndTheirNumberIsBounded) {
  v1::StepRecord first = MakeStep(1);
  first.clear_phase_seconds();
  first.set_loss(std::nan(""));
  history_->Append(kJob, first);
  v1::StepRecord second = MakeStep(2);
  for (int i = 0; i < 1'000; ++i) {
    (*second.mutable_memory_bytes())["kind" + std::to_string(i)] = i;
  }
  (*second.mutable_phase_seconds())[std::string(1'000, 'x')] = 1;
  history_->Append(kJob, second);
  Flush();
  Restart();
  const HistoryTable rows = All();
  EXPECT_LE(rows.columns.size(), kHistoryColumns);
  EXPECT_TRUE(std::isnan(rows.Find("phase_seconds/forward")->last[0]));
  EXPECT_GT(rows.Find("phase_seconds/forward")->last[1], 0);
  EXPECT_TRUE(std::isnan(rows.ToStep(0).loss()));
  EXPECT_EQ(rows.ToStep(0).phase_seconds_size(), 0);
}

TEST_F(HistoryTest, ADamagedBlockIsSkippedAndTheRestServed) {
  AppendRange(1, 4'096);
  history_->AppendEval(kJob, MakeEval(10, 1.0));
  Flush();
  history_.reset();
  // Damages a byte in the body of the second frame of steps, then one in a header.
  const std::string content = *base::ReadFile(File("job-1.steps"));
  const auto header = ParseHistoryHeader(content);
  ASSERT_TRUE(header.has_value());
  for (const size_t at : {sizeof(HistoryFrameHeader) + 500, size_t{20}}) {
    std::string damaged = content;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    ASSERT_TRUE(base::WriteFileAtomic(File("job-1.steps"), damaged).ok());
    fs::remove(File("journal"));
    Restart();
    const HistoryTable rows = All();
    ASSERT_EQ(rows.num_rows(), 3'072U);
    EXPECT_EQ(rows.steps.front(), 1'025);
    AppendRange(4'097, 5'500);
    Flush();
    Restart();
    EXPECT_EQ(All().steps.back(), 5'500);
    EXPECT_EQ(history_->Query(kJob, {}).evals.size(), 1U);
  }
}

TEST_F(HistoryTest, ATruncatedFileLosesItsEndOnly) {
  AppendRange(1, 4'096);
  Flush();
  history_.reset();
  fs::remove(File("journal"));
  const std::string content = *base::ReadFile(File("job-1.steps"));
  const size_t size = content.size();
  for (const size_t keep :
       {size - 1, size - 1'000, size - 100'000, size / 2, size_t{1}, size_t{0}}) {
    ASSERT_TRUE(base::WriteFileAtomic(File("job-1.steps"), content.substr(0, keep)).ok());
    Restart();
    const int64_t kept = history_->Query(kJob, {}).last_step;
    EXPECT_EQ(kept % 1'024, 0);
    EXPECT_LT(kept, 4'097);
    // The steps arrive again, since they were never acknowledged.
    AppendRange(kept + 1, 4'096);
    Flush();
    Restart();
    ExpectWhole(4'096);
    ExpectPyramid(1, 100);
    history_.reset();
    fs::remove(File("journal"));
  }
}

TEST_F(HistoryTest, ATornJournalLosesItsEndOnly) {
  for (int64_t step = 1; step <= 50; ++step) {
    AppendRange(step, step);
    Flush();
  }
  history_.reset();
  const std::string journal = *base::ReadFile(File("journal"));
  for (const size_t keep : {journal.size() - 1, journal.size() / 2, size_t{7}, size_t{0}}) {
    ASSERT_TRUE(base::WriteFileAtomic(File("journal"), journal.substr(0, keep)).ok());
    Restart();
    const auto kept = static_cast<int64_t>(All().num_rows());
    EXPECT_LT(kept, 50);
    AppendRange(kept + 1, 60);
    Flush();
    Restart();
    ExpectWhole(60);
  }
  // A hole in the middle costs only what was in it.
  std::string damaged = *base::ReadFile(File("journal"));
  ASSERT_TRUE(base::WriteFileAtomic(File("journal"), journal).ok());
  damaged = journal;
  damaged[journal.size() / 2] = static_cast<char>(damaged[journal.size() / 2] ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(File("journal"), damaged).ok());
  Restart();
  EXPECT_EQ(All().num_rows(), 49U);
}

TEST_F(HistoryTest, RandomBytesInTheFilesAreNoCrash) {
  AppendRange(1, 1'500);
  Flush();
  history_.reset();
  const std::string content = *base::ReadFile(File("job-1.steps"));
  const std::string journal = *base::ReadFile(File("journal"));
  uint32_t random = 1;
  const auto next = [&] { return random = random * 1'664'525 + 1'013'904'223; };
  for (int round = 0; round < 40; ++round) {
    std::string a = content;
    std::string b = journal;
    for (int i = 0; i < 1 + round; ++i) {
      a[next() % a.size()] = static_cast<char>(next() >> 24);
      b[next() % b.size()] = static_cast<char>(next() >> 24);
    }
    ASSERT_TRUE(base::WriteFileAtomic(File("job-1.steps"), a).ok());
    ASSERT_TRUE(base::WriteFileAtomic(File("journal"), b).ok());
    Restart();
    const HistoryTable rows = All();
    for (size_t row = 1; row < rows.num_rows(); ++row) {
      ASSERT_LT(rows.steps[row - 1], rows.steps[row]);
    }
    const int64_t last = history_->Query(kJob, {}).last_step;
    EXPECT_TRUE(history_->Append(kJob, MakeStep(last + 1, 2)));
  }
}

TEST_F(HistoryTest, WhileTheDiskRefusesNothingIsSafeAndNothingIsLost) {
  AppendRange(1, 10);
  Flush();
  EXPECT_TRUE(history_->ok());
  // A folder in the journal's place can be neither opened nor replaced.
  fs::rename(File("journal"), File("journal.away"));
  fs::create_directory(File("journal"));
  history_ = std::make_unique<History>(folder_);
  history_->Recover({kJob});
  AppendRange(1, 30);
  EXPECT_FALSE(history_->Flush().ok());
  EXPECT_FALSE(history_->ok());
  EXPECT_TRUE(history_->has_unflushed());
  EXPECT_EQ(history_->num_errors(), 1);
  ExpectWhole(30);  // served from memory
  AppendRange(31, 40);
  EXPECT_FALSE(history_->Flush().ok());
  fs::remove(File("journal"));
  Flush();
  EXPECT_TRUE(history_->ok());
  Restart();
  ExpectWhole(40);
}

TEST_F(HistoryTest, MemoryIsBoundedWhileTheDiskRefuses) {
  std::ofstream(folder_) << "a file where the folder should be";
  int64_t taken = 0;
  for (int64_t step = 1; step <= 70'000; ++step) taken += history_->Append(kJob, MakeStep(step));
  EXPECT_FALSE(history_->Flush().ok());
  EXPECT_EQ(taken, static_cast<int64_t>(kHistoryHeldRows));
  EXPECT_EQ(history_->num_lost_steps(), 70'000 - taken);
  fs::remove(folder_);
  Flush();
  Restart();
  ExpectWhole(taken);
}

TEST_F(HistoryTest, JobsShareAJournalAndLeaveIt) {
  AppendRange(1, 500);
  AppendRange(1, 700, 1, "job-2");
  Flush();
  EXPECT_FALSE(fs::exists(File("job-1.steps"))) << "no frame is full yet";
  history_->Close(kJob);
  Flush();
  EXPECT_TRUE(fs::exists(File("job-1.steps")));
  fs::remove(File("journal"));
  Restart();
  ExpectWhole(500);
  ExpectPyramid(1, 10);
  EXPECT_TRUE(All("job-2").empty()) << "only the journal had them";
}

TEST_F(HistoryTest, ADeletedJobLeavesNothing) {
  AppendRange(1, 1'100);
  history_->AppendEval(kJob, MakeEval(5, 1.0));
  AppendRange(1, 10, 1, "job-2");
  Flush();
  history_->Erase(kJob);
  EXPECT_TRUE(All().empty());
  EXPECT_FALSE(fs::exists(File("job-1.steps")));
  EXPECT_FALSE(fs::exists(File("job-1.evals")));
  Restart({"job-2"});
  EXPECT_TRUE(All().empty());
  ExpectWhole(10, 1LL << 40, "job-2");
  Restart({});
  EXPECT_TRUE(All("job-2").empty()) << "a job that the store does not know";
}

TEST_F(HistoryTest, TheJournalIsWrittenAnewWhenItHasGrown) {
  // Tens of kB per flush of 500 steps: more than 16 MiB at least once.
  AppendRange(1, 900, 1, "job-2");
  int64_t largest = 0;
  for (int64_t step = 1; step <= 150'000; step += 500) {
    AppendRange(step, step + 499);
    Flush();
    largest = std::max(largest, static_cast<int64_t>(fs::file_size(File("journal"))));
  }
  EXPECT_LT(largest, 18 << 20);
  EXPECT_GT(largest, 15 << 20);
  Restart();
  ExpectWhole(900, 1LL << 40, "job-2");
  EXPECT_EQ(All().num_rows(), 150'000U);
}

TEST_F(HistoryTest, EvaluationsOfAnUndoneEpochAreGone) {
  for (const int64_t step : {100, 200, 300}) history_->AppendEval(kJob, MakeEval(step, 1.0));
  Flush();
  history_->AppendEval(kJob, MakeEval(200, 2.0));
  history_->AppendEval(kJob, MakeEval(200, 2.0));  // a repeat
  Flush();
  Restart();
  history_->AppendEval(kJob, MakeEval(250, 3.0));  // not flushed yet
  AppendRange(1, 1);
  const HistoryView view = history_->Query(kJob, {.from_step = 1});
  std::vector<std::pair<int64_t, double>> got;
  for (const auto& eval : view.evals) got.emplace_back(eval.step(), eval.loss());
  EXPECT_THAT(
      got, ::testing::ElementsAre(std::pair(100, 1.0), std::pair(200, 2.0), std::pair(250, 3.0)));
}

// A part of the split, as at every other step, and all of it. Both come back after a restart of the
// ranks, and are there once.
TEST_F(HistoryTest, TheLastStepHasTwoEvaluations) {
  history_->AppendEval(kJob, MakeEval(100, 3.0));
  for (int time = 0; time < 2; ++time) {
    history_->AppendEval(kJob, MakeEval(200, 2.0));
    megatrain::v1::EvalRecord whole = MakeEval(200, 2.5);
    whole.set_final(true);
    history_->AppendEval(kJob, whole);
  }
  AppendRange(1, 1);
  Flush();
  const HistoryView view = history_->Query(kJob, {.from_step = 1});
  std::vector<std::pair<int64_t, double>> got;
  for (const auto& eval : view.evals) got.emplace_back(eval.step(), eval.loss());
  EXPECT_THAT(
      got, ::testing::ElementsAre(std::pair(100, 3.0), std::pair(200, 2.0), std::pair(200, 2.5)));
}

TEST_F(HistoryTest, ReadersAndTheWriterAtOnce) {
  std::atomic<bool> gave_up = false;
  std::thread reader([&] {
    int64_t seen = 0;
    while (seen < 30'000 && !gave_up) {
      const HistoryView view = history_->Query(kJob, {.points = 50});
      EXPECT_GE(view.last_step, seen);
      seen = view.last_step;
      if (!view.rows.empty()) {
        EXPECT_EQ(view.rows.steps.back(), view.last_step);
      }
      const HistoryTable tail =
          history_->Steps(kJob, std::max<int64_t>(seen - 100, 0), seen + 1, 1'000).rows;
      EXPECT_EQ(tail.num_rows(), static_cast<size_t>(std::min<int64_t>(seen, 100)));
    }
  });
  for (int64_t step = 1; step <= 30'000 && !gave_up; step += 100) {
    AppendRange(step, step + 99);
    Flush();
    gave_up = HasFatalFailure();
  }
  reader.join();
}

}  // namespace
}  // namespace mt::daemon
