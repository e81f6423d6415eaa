// The history of jobs that the store does not know at a start: set aside, and back with the job.
#include <filesystem>

#include <gtest/gtest.h>

#include "daemon/telemetry/history.h"
#include "tests/daemon/telemetry/history_fixture.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;

// An older store does not know a job: its history is nobody's to delete.
TEST_F(HistoryTest, WhatTheStoreDoesNotKnowIsSetAsideAndComesBack) {
  AppendRange(1, 9'000);  // some in frames, some in the journal
  history_->AppendEval(kJob, MakeEval(100, 2.0));
  Flush();
  Restart({});
  EXPECT_TRUE(All().empty());
  EXPECT_FALSE(fs::exists(File("job-1.steps")));
  Flush();  // what only the journal had goes to its file
  Restart({});
  EXPECT_TRUE(fs::exists(File("unknown/job-1.steps")));
  EXPECT_TRUE(fs::exists(File("unknown/job-1.evals")));
  history_->BringBack("job-2");  // there is nothing of it
  history_->BringBack(kJob);
  ExpectWhole(9'000);
  EXPECT_EQ(history_->Query(kJob, {}).evals.size(), 1u);
  AppendRange(9'001, 9'010);
  Flush();
  Restart();
  ExpectWhole(9'010);
}

TEST_F(HistoryTest, WhatIsBroughtBackAtOnceIsWholeToo) {
  AppendRange(1, 9'000);
  Flush();
  Restart({});
  history_->BringBack(kJob);  // before any flush
  AppendRange(9'001, 9'010);
  Flush();
  Restart();
  ExpectWhole(9'010);
}

TEST_F(HistoryTest, WhatWasSetAsideIsNeverWrittenOver) {
  AppendRange(1, 9'000);
  Flush();
  Restart({});
  Flush();
  AppendRange(1, 10);  // a job of that uid again, which is not brought back
  Flush();
  Restart({});
  Flush();
  history_->BringBack(kJob);
  ExpectWhole(9'000);
}

TEST_F(HistoryTest, AStartRemovesWhatIsLeftOfDeletedJobs) {
  AppendRange(1, 9'000);
  Flush();
  history_ = std::make_unique<History>(folder_);
  history_->Recover({"job-2"}, {kJob});
  EXPECT_FALSE(fs::exists(File("job-1.steps")));
  history_->BringBack(kJob);
  EXPECT_TRUE(All().empty());
}

}  // namespace
}  // namespace mt::daemon
