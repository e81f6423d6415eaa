// A backup is the store and the history of one moment while both go on, and a restore takes whole
// archives of safe names only, and declares itself.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "common/control/epoch.h"
#include "daemon/backup/archive.h"
#include "daemon/backup/backup_runner.h"
#include "daemon/backup/restore.h"
#include "daemon/backup/tar.h"
#include "megatrain/v1/store.pb.h"
#include "tests/daemon/store/new_store.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;
namespace v1 = megatrain::v1;
using ::testing::HasSubstr;

void Put(const std::string& path, const std::string& content) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

std::string Hash(const std::string& bytes) {
  RunningSum sum;
  sum.Add(bytes);
  return fmt::format("{}", sum.Get());
}

std::map<std::string, std::string> RowsOf(Store& store, Table table) {
  std::map<std::string, std::string> rows;
  EXPECT_TRUE(store
                  .ForEach(table,
                           [&rows](std::string_view key, std::string_view value) {
                             rows.emplace(key, value);
                             return OkStatus();
                           })
                  .ok());
  return rows;
}

// What the core's loop does with tasks, and commits of its own between them.
class FakeCore {
 public:
  explicit FakeCore(std::function<void()> round)
      : round_(std::move(round)), thread_([this] { Run(); }) {}
  ~FakeCore() {
    {
      const base::MutexLock lock(&mu_);
      ended_ = true;
    }
    thread_.join();
  }
  void Post(std::function<void()> task) {
    const base::MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
  }

 private:
  void Run() {
    for (bool ended = false; !ended;) {
      std::function<void()> task;
      {
        const base::MutexLock lock(&mu_);
        ended = ended_ && tasks_.empty();
        if (!tasks_.empty()) {
          task = std::move(tasks_.front());
          tasks_.pop_front();
        }
      }
      if (task) task();
      if (round_) round_();
    }
  }
  std::function<void()> round_;
  base::Mutex mu_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

class BackupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = OpenOrMakeStore(state_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = std::move(store).value();
    Put(state_ + "/history/journal", "the journal");
    Put(state_ + "/history/uid-1.steps", std::string(300'000, 's'));
    Put(state_ + "/history/uid-1.evals", "");
    Put(state_ + "/history/unknown/uid-0.steps", "of a job that is not known");
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(folder_);
  }
  void Fill(int rows, int64_t term = 0) {
    std::vector<Write> batch;
    for (int i = 0; i < rows; ++i)
      batch.push_back({Table::kJobs, fmt::format("job-{:06}", i), std::string(1'000, 'v'), 1});
    v1::StoredCluster cluster;
    cluster.set_cluster_id("the-cluster");
    cluster.set_cluster_key("secret");
    cluster.set_term(term);
    cluster.set_restore_settled(true);
    batch.push_back({Table::kCluster, "self", cluster.SerializeAsString(), 1});
    ASSERT_TRUE(store_->Commit(batch).ok());
  }
  // The archive, whole, with `round` between the steps of the copy.
  Status Save(const std::function<void()>& round = nullptr, std::string* out = nullptr) {
    std::string bytes;
    std::promise<Status> end;
    {
      FakeCore core(round);
      BackupRunner runner(store_.get(), state_);
      runner.Start([&core](std::function<void()> task) { core.Post(std::move(task)); },
                   {.take =
                        [&bytes](const std::string& more) {
                          bytes += more;
                          return true;
                        },
                    .end = [&end](const Status& status) { end.set_value(status); }});
      const Status status = end.get_future().get();
      if (!status.ok()) return status;
    }
    Put(file_, bytes);
    if (out != nullptr) *out = bytes;
    return OkStatus();
  }
  const std::string folder_ = ::testing::TempDir() + "mt-backup-" + base::RandomHex(6);
  const std::string state_ = folder_ + "/state";
  const std::string file_ = folder_ + "/saved.tar";
  const std::string restored_ = folder_ + "/restored";
  std::unique_ptr<SqliteStore> store_;
};

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

// Gives a header that was changed its sum again.
void Sum(std::string* header) {
  int sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>((*header)[i]);
  header->replace(148, 7, fmt::format("{:06o}", sum) + '\0');
}

// --- Restores that are refused: none leaves a store.
class RefusedRestoreTest : public BackupTest {
 protected:
  void SetUp() override {
    BackupTest::SetUp();
    Fill(50);
    ASSERT_TRUE(Save(nullptr, &whole_).ok());
  }
  Status Restore(const std::string& archive) {
    Put(file_, archive);
    const Status status = RestoreBackup(file_, restored_).status();
    EXPECT_FALSE(SqliteStore::Open(restored_).ok());
    EXPECT_FALSE(fs::exists(restored_ + "/restore.tmp"));
    EXPECT_FALSE(fs::exists(restored_ + "/history"));
    return status;
  }
  // The archive with one more file in front.
  std::string With(const std::string& header, const std::string& content) {
    return header + content + std::string(TarPadding(static_cast<int64_t>(content.size())), '\0') +
           whole_;
  }
  std::string whole_;
};

TEST_F(RefusedRestoreTest, WhatEndsTooEarly) {
  for (size_t size = 0; size + 2 * kTarBlock < whole_.size(); size += 61 * kTarBlock + 100) {
    const Status status = Restore(whole_.substr(0, size));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << status;
  }
  // Cut between two files, and ended well.
  const size_t sums = whole_.rfind("backup.sums");
  EXPECT_THAT(base::Message(Restore(whole_.substr(0, sums) + TarEnd())),
              HasSubstr("not a whole backup"));
}

TEST_F(RefusedRestoreTest, WhatIsDamaged) {
  int flipped = 0;
  for (size_t at = 0; at + 2 * kTarBlock < whole_.size();) {
    const auto entry = ParseTarHeader(whole_.substr(at, kTarBlock));
    ASSERT_TRUE(entry.ok() && entry->has_value());
    const auto size = static_cast<size_t>((*entry)->size);
    // In the header (its name, its size, its time) and in the file, but not in its padding.
    std::vector<size_t> places = {at, at + 130, at + 140};
    for (size_t place = 0; place < size; place += 19'973) places.push_back(at + kTarBlock + place);
    for (const size_t place : places) {
      std::string damaged = whole_;
      damaged[place] = static_cast<char>(damaged[place] ^ 1);
      EXPECT_EQ(Restore(damaged).code(), absl::StatusCode::kDataLoss) << place;
      ++flipped;
    }
    at += kTarBlock + size + TarPadding((*entry)->size);
  }
  EXPECT_GT(flipped, 30);
}

TEST_F(RefusedRestoreTest, NamesThatLeadElsewhere) {
  for (const char* name : {"../x", "/tmp/mt-x", "history/../../x", "history//x", "./x", "history/.",
                           "history/a\\b", "history/a b", "etc/passwd", "coordinator.lock"}) {
    auto header = TarHeader({.name = "history/x", .size = 4});
    ASSERT_TRUE(header.ok());
    header->replace(0, 16, std::string(name) + std::string(16 - std::strlen(name), '\0'));
    Sum(&*header);
    const Status status = Restore(With(*header, "evil"));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << status;
    EXPECT_THAT(base::Message(status), HasSubstr(name));
  }
  EXPECT_FALSE(fs::exists(folder_ + "/x"));
}

TEST_F(RefusedRestoreTest, AnythingButAFile) {
  auto link = TarHeader({.name = "history/x", .size = 0});
  (*link)[156] = '2';
  Sum(&*link);
  EXPECT_THAT(base::Message(Restore(With(*link, ""))), HasSubstr("no regular file"));
}

TEST_F(RefusedRestoreTest, AFileThatWasAddedOrComesTwice) {
  EXPECT_EQ(Restore(With(*TarHeader({.name = "history/x", .size = 4}), "evil")).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_FALSE(Restore(With(*TarHeader({.name = "history/journal", .size = 4}), "evil")).ok());
}

TEST_F(RefusedRestoreTest, AFolderThatHoldsSomething) {
  Put(restored_ + "/notes.txt", "x");
  Put(file_, whole_);
  const Status status = RestoreBackup(file_, restored_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::Message(status), HasSubstr("notes.txt"));
  EXPECT_THAT(base::Message(RestoreBackup(file_, state_).status()),
              HasSubstr("there is one already"));
  fs::remove(restored_ + "/notes.txt");
  fs::create_directories(restored_ + "/lost+found");
  Put(restored_ + "/restore.tmp/coordinator.db", "of one that was interrupted");
  EXPECT_TRUE(RestoreBackup(file_, restored_).ok());
  EXPECT_TRUE(SqliteStore::Open(restored_).ok());
}

TEST(Tar, HeadersAreReadAsTheyWereWritten) {
  for (const int64_t size :
       {int64_t{0}, int64_t{511}, int64_t{1} << 32, int64_t{1} << 33, int64_t{5} << 40}) {
    const auto header = TarHeader({.name = "history/abc.steps", .size = size, .time_s = 1'700'000});
    ASSERT_TRUE(header.ok());
    ASSERT_EQ(header->size(), kTarBlock);
    const auto entry = ParseTarHeader(*header);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->name, "history/abc.steps");
    EXPECT_EQ((*entry)->size, size);
    EXPECT_EQ((*entry)->time_s, 1'700'000);
    EXPECT_EQ((static_cast<size_t>(size) + TarPadding(size)) % kTarBlock, 0U);
  }
  EXPECT_FALSE(ParseTarHeader(TarEnd().substr(0, kTarBlock))->has_value());
  EXPECT_TRUE(TarHeader({.name = std::string(100, 'n')}).ok());
  EXPECT_FALSE(TarHeader({.name = std::string(101, 'n')}).ok());
}

}  // namespace
}  // namespace mt::daemon
