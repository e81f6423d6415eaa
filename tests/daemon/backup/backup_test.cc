// A backup is the store and the history of one moment while both go on.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/control/epoch.h"
#include "daemon/backup/restore.h"
#include "tests/daemon/backup/backup_fixture.h"

namespace mt::daemon {
namespace {

using ::testing::HasSubstr;

TEST_F(BackupTest, WhatIsRestoredIsWhatWasSaved) {
  Fill(2'000, /*term=*/7);
  ASSERT_TRUE(Save().ok());
  EXPECT_FALSE(fs::exists(state_ + "/backup.tmp"));
  // A second program reads it.
  EXPECT_EQ(std::system(fmt::format("tar -tf {0} > {0}.list", file_).c_str()), 0);
  EXPECT_EQ(*base::ReadFile(file_ + ".list"),
            "coordinator.db\nhistory/journal\nhistory/uid-1.evals\nhistory/uid-1.steps\n"
            "history/unknown/uid-0.steps\nbackup.sums\n");
  const auto restored = RestoreBackup(file_, restored_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->cluster_id, "the-cluster");
  EXPECT_EQ(restored->rows, 2'001);
  EXPECT_EQ(restored->history_files, 4);
  for (const char* name : {"journal", "uid-1.steps", "uid-1.evals", "unknown/uid-0.steps"}) {
    EXPECT_EQ(Hash(*base::ReadFile(restored_ + "/history/" + name)),
              Hash(*base::ReadFile(state_ + "/history/" + name)))
        << name;
  }
  EXPECT_FALSE(fs::exists(restored_ + "/restore.tmp"));
  const auto store = SqliteStore::Open(restored_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(RowsOf(**store, Table::kJobs), RowsOf(*store_, Table::kJobs));
  v1::StoredCluster cluster;
  ASSERT_TRUE(cluster.ParseFromString(RowsOf(**store, Table::kCluster)["self"]));
  EXPECT_EQ(cluster.term(), 7 + control::kRestoreTerms);
  EXPECT_EQ(cluster.restored_term(), cluster.term());
  EXPECT_FALSE(cluster.restore_settled());
  EXPECT_EQ(cluster.cluster_key(), "secret");
}

// Each commit changes two tables alike, so a copy of two moments would show.
TEST_F(BackupTest, ACopyIsOfOneMomentThoughTheStoreGoesOn) {
  Fill(20'000);
  int commits = 0;
  const auto round = [&] {
    const std::string value = fmt::format("{:08}{}", ++commits, std::string(3'000, 'x'));
    std::vector<Write> batch;
    for (const int row : {commits % 50, 19'000 + commits % 997}) {
      const std::string key = fmt::format("job-{:06}", row);
      batch.push_back({Table::kJobs, key, value, 1});
      batch.push_back({Table::kAllocations, key, value, 1});
    }
    batch.push_back({Table::kEvents, "newest", value, 1});
    batch.push_back({Table::kWorkers, "newest", value, 1});
    ASSERT_TRUE(store_->Commit(batch).ok());
  };
  ASSERT_TRUE(Save(round).ok());
  EXPECT_GT(commits, 3);
  EXPECT_GT(steps_, 3) << "the core is not held for as long as the copy takes";
  ASSERT_TRUE(RestoreBackup(file_, restored_).ok());
  const auto store = SqliteStore::Open(restored_);
  ASSERT_TRUE(store.ok()) << store.status();
  auto jobs = RowsOf(**store, Table::kJobs);
  const auto allocations = RowsOf(**store, Table::kAllocations);
  EXPECT_FALSE(allocations.empty());
  std::string newest;
  for (const auto& [key, value] : allocations) {
    EXPECT_EQ(jobs[key], value);
    newest = std::max(newest, value);
  }
  EXPECT_EQ(RowsOf(**store, Table::kEvents)["newest"], newest);
  EXPECT_EQ(RowsOf(**store, Table::kWorkers)["newest"], newest);
}

// Steps move from the journal to their job's file, and the journal is replaced.
TEST_F(BackupTest, StepsThatMoveWhileTheArchiveIsReadAreInIt) {
  Fill(10);
  store_.reset();
  auto archive = BackupArchive::Open(state_ + "/coordinator.db", state_ + "/history");
  ASSERT_TRUE(archive.ok()) << archive.status();
  const std::string journal = state_ + "/history/journal";
  Put(journal + ".tmp.x", "emptied");
  fs::rename(journal + ".tmp.x", journal);
  Put(state_ + "/history/uid-1.steps", "with the journal's steps");
  fs::remove(state_ + "/history/uid-1.evals");
  std::string bytes;
  for (;;) {
    const auto more = archive->Next();
    ASSERT_TRUE(more.ok()) << more.status();
    if (more->empty()) break;
    bytes += *more;
  }
  Put(file_, bytes);
  ASSERT_TRUE(RestoreBackup(file_, restored_).ok());
  EXPECT_EQ(*base::ReadFile(restored_ + "/history/journal"), "the journal");
  EXPECT_EQ(*base::ReadFile(restored_ + "/history/uid-1.steps"), "with the journal's steps");
  EXPECT_FALSE(fs::exists(restored_ + "/history/uid-1.evals")) << "of a job that was deleted";
  store_ = std::move(SqliteStore::Open(state_)).value();
}

TEST_F(BackupTest, WhatAnInterruptedBackupLeftIsRemoved) {
  Fill(10);
  Put(state_ + "/backup.tmp/coordinator.db", "half");
  EXPECT_TRUE(Save().ok());
  EXPECT_FALSE(fs::exists(state_ + "/backup.tmp"));
}

TEST_F(BackupTest, ADamagedStoreIsNoBackup) {
  Fill(100);
  store_.reset();
  std::string bytes = *base::ReadFile(state_ + "/coordinator.db");
  const size_t row = bytes.find("vvvv");
  bytes[row] = 'w';
  Put(state_ + "/coordinator.db", bytes);
  store_ = std::move(SqliteStore::Open(state_)).value();
  const Status status = Save();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(base::Message(status), HasSubstr("table jobs, key 'job-"));
  EXPECT_FALSE(fs::exists(state_ + "/backup.tmp"));
}

TEST_F(BackupTest, OneAtATimeAndAReaderMayLeave) {
  Fill(100);
  FakeCore core(nullptr);
  BackupRunner runner(store_.get(), state_);
  const auto post = [&core](std::function<void()> task) { core.Post(std::move(task)); };
  std::promise<void> reached;
  std::promise<void> leave;
  std::promise<Status> first;
  bool told = false;
  runner.Start(post, {.take =
                          [&](const std::string&) {
                            if (!std::exchange(told, true)) reached.set_value();
                            leave.get_future().wait();
                            return false;
                          },
                      .end = [&](const Status& status) { first.set_value(status); }});
  reached.get_future().wait();
  Status second;
  runner.Start(post, {.take = [](const std::string&) { return true; },
                      .end = [&](const Status& status) { second = status; }});
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  leave.set_value();
  EXPECT_EQ(first.get_future().get().code(), absl::StatusCode::kCancelled);
  std::promise<Status> third;
  runner.Start(post, {.take = [](const std::string&) { return true; },
                      .end = [&](const Status& status) { third.set_value(status); }});
  EXPECT_TRUE(third.get_future().get().ok());
}

}  // namespace
}  // namespace mt::daemon
