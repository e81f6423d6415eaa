// A state folder is never taken for a new cluster's, its files are their owner's alone, and a row
// that the disk or memory changed is refused when it is read.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "daemon/store/store_schema.h"
#include "tests/daemon/store/new_store.h"

namespace mt::daemon {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

unsigned ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

class StoreFolderTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ + "/coordinator.db").c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(db);
  }
  std::string folder_ = ::testing::TempDir() + "mt-folder-" + base::RandomHex(6);
};

TEST_F(StoreFolderTest, AFolderWithoutAStoreIsRefusedAndLeftAsItIs) {
  for (const bool exists : {false, true}) {
    if (exists) fs::create_directories(folder_);
    const auto refused = SqliteStore::Open(folder_);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(base::Message(refused.status()),
                HasSubstr("mt-coordinator init --state " + folder_));
    EXPECT_EQ(fs::exists(folder_), exists);
    EXPECT_TRUE(!exists || fs::is_empty(folder_));
  }
}

TEST_F(StoreFolderTest, AStoreIsMadeOnce) {
  ASSERT_TRUE(SqliteStore::Create(folder_).ok());
  EXPECT_TRUE(SqliteStore::Open(folder_).ok());
  const Status again = SqliteStore::Create(folder_);
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::Message(again), HasSubstr("there is one already"));
}

TEST_F(StoreFolderTest, AnInterruptedInitIsMadeAnew) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/coordinator.db.new") << "half";
  EXPECT_FALSE(SqliteStore::Open(folder_).ok());
  ASSERT_TRUE(SqliteStore::Create(folder_).ok());
  EXPECT_FALSE(fs::exists(folder_ + "/coordinator.db.new"));
  EXPECT_TRUE(SqliteStore::Open(folder_).ok());
}

TEST_F(StoreFolderTest, AnEmptyFileIsNoStore) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/coordinator.db").close();
  const auto refused = SqliteStore::Open(folder_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(base::Message(refused.status()), HasSubstr("no store of a coordinator"));
}

TEST_F(StoreFolderTest, ALogWithoutItsDatabaseIsNamed) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/coordinator.db-wal") << "x";
  for (const Status& refused :
       {SqliteStore::Open(folder_).status(), SqliteStore::Create(folder_)}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(base::Message(refused), HasSubstr("coordinator.db-wal is there without"));
  }
}

TEST_F(StoreFolderTest, AFolderThatIsNoneOrMayNotBeReadIsNamed) {
  std::ofstream(folder_) << "x";
  for (const Status& refused : {SqliteStore::Open(folder_).status(), SqliteStore::Create(folder_)})
    EXPECT_THAT(base::Message(refused), HasSubstr(folder_ + " is not a folder"));
  fs::remove(folder_);
  ASSERT_TRUE(SqliteStore::Create(folder_).ok());
  fs::permissions(folder_, fs::perms::none);
  // In a child without root's rights: root may read everything.
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(99);
    _exit(static_cast<int>(SqliteStore::Open(folder_).status().code()));
  }
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  ASSERT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), static_cast<int>(absl::StatusCode::kPermissionDenied));
  fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(StoreFolderTest, FilesAreTheirOwnersAloneAndOlderOnesAreMended) {
  const mode_t before = umask(0);
  ASSERT_TRUE(SqliteStore::Create(folder_).ok());
  {
    auto store = SqliteStore::Open(folder_);
    ASSERT_TRUE((*store)->Commit({{Table::kJobs, "a", "1", 1}}).ok());
    EXPECT_EQ(ModeOf(folder_), 0700U);
    for (const char* name : {"coordinator.db", "coordinator.db-wal", "coordinator.lock"})
      EXPECT_EQ(ModeOf(base::JoinPath(folder_, name)), 0600U) << name;
  }
  umask(before);
  fs::create_directories(folder_ + "/history/unknown");
  for (const char* name : {"history/journal", "history/unknown/u.steps", "beside"})
    std::ofstream(base::JoinPath(folder_, name)) << "x";
  for (const char* name : {"coordinator.db", "coordinator.lock", "history/journal",
                           "history/unknown/u.steps", "beside"})
    ASSERT_EQ(chmod(base::JoinPath(folder_, name).c_str(), 0644), 0);
  for (const char* name : {"", "history", "history/unknown"})
    ASSERT_EQ(chmod(base::JoinPath(folder_, name).c_str(), 0755), 0);
  ASSERT_TRUE(SqliteStore::Open(folder_).ok());
  for (const char* name :
       {"coordinator.db", "coordinator.lock", "history/journal", "history/unknown/u.steps"})
    EXPECT_EQ(ModeOf(base::JoinPath(folder_, name)), 0600U) << name;
  for (const char* name : {"", "history", "history/unknown"})
    EXPECT_EQ(ModeOf(base::JoinPath(folder_, name)), 0700U) << name;
  EXPECT_EQ(ModeOf(base::JoinPath(folder_, "beside")), 0644U) << "not the coordinator's";
}

// --- Checksums.
constexpr char kValue[] = "the value of a row that is long enough to be found in the file";

std::vector<Write> ARowOfEach() {
  std::vector<Write> rows;
  for (int i = 0; i < kNumTables; ++i)
    rows.push_back({static_cast<Table>(i), fmt::format("key-of-{}", i), kValue, 7'000 + i});
  return rows;
}

Status ReadAll(Store& store, Table table) {
  return store.ForEach(table, [](std::string_view, std::string_view) { return OkStatus(); });
}

TEST_F(StoreFolderTest, TwoFlippedBytesInARowOfEachTableAreRefused) {
  for (int i = 0; i < kNumTables; ++i) {
    fs::remove_all(folder_);
    {
      auto store = OpenOrMakeStore(folder_);
      ASSERT_TRUE((*store)->Commit(ARowOfEach()).ok());
    }
    // In the file, behind SQLite's back: it has no checksums of its own.
    const std::string path = folder_ + "/coordinator.db";
    std::string bytes = *base::ReadFile(path);
    const size_t key = bytes.find(fmt::format("key-of-{}", i));
    ASSERT_NE(key, std::string::npos);
    const size_t value = bytes.find(kValue, key);
    ASSERT_LT(value, key + 64);
    std::swap(bytes[value], bytes[value + 1]);
    std::ofstream(path, std::ios::binary) << bytes;
    auto store = SqliteStore::Open(folder_);
    ASSERT_TRUE(store.ok()) << store.status();
    const auto table = static_cast<Table>(i);
    const auto newest = [](std::string_view, std::string_view) { return true; };
    for (const Status& refused :
         {ReadAll(**store, table), (*store)->ForEachNewest(table, "", newest),
          (*store)->LastKey(table).status(), (*store)->FirstKey(table).status()}) {
      EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
      for (const std::string& words :
           {fmt::format("table {}, key 'key-of-{}'", TableName(table), i),
            std::string("mt-coordinator restore")})
        EXPECT_THAT(base::Message(refused), HasSubstr(words));
    }
    for (int other = 0; other < kNumTables; ++other) {
      EXPECT_EQ(ReadAll(**store, static_cast<Table>(other)).ok(), other != i);
    }
  }
}

TEST_F(StoreFolderTest, AChangeOfAnyPartOfARowIsFound) {
  for (const char* change :
       {"UPDATE jobs SET value = 'x'", "UPDATE jobs SET key = 'key-of-9'",
        "UPDATE jobs SET time_us = time_us + 1", "UPDATE jobs SET sum = sum + 1",
        "UPDATE jobs SET sum = 0", "UPDATE jobs SET key = 'key-of-0t', value = substr(value, 2)",
        "DELETE FROM jobs; INSERT INTO jobs SELECT * FROM workers"}) {
    fs::remove_all(folder_);
    {
      auto store = OpenOrMakeStore(folder_);
      ASSERT_TRUE((*store)->Commit(ARowOfEach()).ok());
      ASSERT_TRUE(ReadAll(**store, Table::kJobs).ok());
    }
    Sql(change);
    auto store = SqliteStore::Open(folder_);
    EXPECT_EQ(ReadAll(**store, Table::kJobs).code(), absl::StatusCode::kDataLoss) << change;
  }
}

TEST_F(StoreFolderTest, ARowWrittenAgainHasItsNewChecksum) {
  auto store = OpenOrMakeStore(folder_);
  for (const char* value : {"one", "two", ""}) {
    ASSERT_TRUE((*store)->Commit({{Table::kJobs, "a", value, 1}}).ok());
    EXPECT_TRUE(ReadAll(**store, Table::kJobs).ok()) << value;
  }
}

// Its rows would get checksums of what they are by now.
TEST_F(StoreFolderTest, ADamagedStoreOfVersion1IsRefusedBeforeItIsGivenChecksums) {
  fs::create_directories(folder_);
  std::string sql;
  for (int i = 0; i < kNumTables - 1; ++i) {
    sql += fmt::format(
        "CREATE TABLE {} (key TEXT PRIMARY KEY, value BLOB NOT NULL, time_us INTEGER NOT NULL) "
        "WITHOUT ROWID;",
        TableName(static_cast<Table>(i)));
  }
  // An order of keys that reading in order, as the migration does, would not notice.
  Sql(sql +
      "INSERT INTO jobs VALUES ('key-1', x'01', 1), ('key-2', x'02', 2);"
      "PRAGMA user_version=1;");
  const std::string path = folder_ + "/coordinator.db";
  std::string bytes = *base::ReadFile(path);
  bytes[bytes.find("key-1") + 4] = '3';
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(SqliteStore::Open(folder_).status().code(), absl::StatusCode::kDataLoss);
}

// As version 1 left it: no checksums, no table `cluster`.
TEST_F(StoreFolderTest, AStoreOfVersion1IsGivenChecksums) {
  fs::create_directories(folder_);
  std::string sql;
  for (int i = 0; i < kNumTables; ++i) {
    const char* name = TableName(static_cast<Table>(i));
    if (static_cast<Table>(i) == Table::kCluster) continue;
    sql += fmt::format(
        "CREATE TABLE {0} (key TEXT PRIMARY KEY, value BLOB NOT NULL, time_us INTEGER NOT NULL) "
        "WITHOUT ROWID; INSERT INTO {0} VALUES ('key-of-{1}', x'00ff0{1}', {1}), ('z', x'', -1);",
        name, i);
  }
  Sql(sql + "PRAGMA journal_mode=WAL; PRAGMA user_version=1;");
  for (int round = 0; round < 2; ++round) {
    auto store = SqliteStore::Open(folder_);
    ASSERT_TRUE(store.ok()) << store.status();
    for (int i = 0; i < kNumTables; ++i) {
      std::string seen;
      const Status read = (*store)->ForEach(static_cast<Table>(i),
                                            [&seen](std::string_view key, std::string_view value) {
                                              seen += fmt::format("{}:{} ", key, value.size());
                                              return OkStatus();
                                            });
      EXPECT_TRUE(read.ok()) << read;
      EXPECT_EQ(seen,
                static_cast<Table>(i) == Table::kCluster ? "" : fmt::format("key-of-{}:3 z:0 ", i));
    }
  }
  Sql("UPDATE jobs SET value = x'01' WHERE key = 'z'");
  EXPECT_EQ(ReadAll(**SqliteStore::Open(folder_), Table::kJobs).code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace mt::daemon
