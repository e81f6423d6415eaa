// Names of a log's operations, and faults that are put into them.
#include "tests/common/base/crash_points.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/common/base/crash_log.h"
#include "tests/common/base/crash_replay.h"

namespace mt::crash {
namespace {

using Kind = Operation::Kind;

std::string Role(std::string_view path) {
  if (path.empty()) return "folder";
  return path.find(".tmp.") == std::string_view::npos ? std::string(path) : "temporary";
}

class CrashPointsTest : public ::testing::Test {
 protected:
  CrashPointsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mt-points-XXXXXX").string();
    top_ = std::filesystem::canonical(::mkdtemp(pattern.data())).string();
  }
  ~CrashPointsTest() override { std::filesystem::remove_all(top_); }
  std::string File(const char* name) const { return top_ + "/" + name; }

  std::string top_;
};

TEST_F(CrashPointsTest, AnAtomicWriteByName) {
  CrashLog log(top_);
  ASSERT_TRUE(base::WriteFileAtomic(File("a"), "text").ok());
  log.Mark("written");
  std::filesystem::remove(File("a"));
  ASSERT_TRUE(base::SyncDir(top_).ok());
  log.Stop();
  EXPECT_EQ(NamesOf(log.operations(), Role),
            (std::vector<std::string>{"create temporary", "write temporary", "sync temporary",
                                      "rename a", "sync folder after rename a", "at written",
                                      "remove a", "sync folder after remove a"}));
}

TEST_F(CrashPointsTest, WritesOfOneFileAreFirstMiddleAndLast) {
  std::vector<Operation> log = {{.kind = Kind::kCreate, .path = "a"}};
  for (int i = 0; i < 3; ++i) log.push_back({.kind = Kind::kWrite, .path = "a"});
  log.push_back({.kind = Kind::kCreate, .path = "b"});
  log.push_back({.kind = Kind::kWrite, .path = "b"});
  EXPECT_EQ(NamesOf(log, Role),
            (std::vector<std::string>{"create a", "write a, first", "write a, middle",
                                      "write a, last", "create b", "write b"}));
}

TEST_F(CrashPointsTest, ASyncIsForWhatItsThreadHasChanged) {
  const std::vector<Operation> log = {{.kind = Kind::kCreate, .path = "a", .thread = 1},
                                      {.kind = Kind::kRemove, .path = "b", .thread = 2},
                                      {.kind = Kind::kSync, .path = "", .thread = 1},
                                      {.kind = Kind::kSync, .path = "", .thread = 3}};
  const std::vector<std::string> names = NamesOf(log, Role);
  EXPECT_EQ(names[2], "sync folder after create a");
  EXPECT_EQ(names[3], "sync folder");
}

// Each operation of a write and of a read fails with what it is told to.
TEST_F(CrashPointsTest, AFaultIsTheOperationsOwn) {
  const auto first_fails = [](Kind kind, int error) {
    return [=, done = false](const Operation& next) mutable {
      if (next.kind != kind || done) return Fault{};
      done = true;
      return Fault{.error = error};
    };
  };
  for (const Kind kind : {Kind::kCreate, Kind::kWrite, Kind::kSync, Kind::kRename}) {
    CrashLog log(top_);
    log.SetFaults(first_fails(kind, ENOSPC));
    const Status written = base::WriteFileAtomic(File("a"), "text");
    log.Stop();
    EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
    EXPECT_EQ(log.Check(), "");
    EXPECT_FALSE(base::Exists(File("a")));
  }
  ASSERT_TRUE(base::WriteFileAtomic(File("a"), "text").ok());
  for (const Kind kind : {Kind::kOpen, Kind::kRead}) {
    CrashLog log(top_);
    log.SetFaults(first_fails(kind, EIO));
    EXPECT_NE(base::Message(base::ReadFile(File("a")).status()).find(File("a")), std::string::npos);
    log.Stop();
    EXPECT_TRUE(log.operations().empty()) << "what reads is not logged";
  }
}

TEST_F(CrashPointsTest, ShortWritesAndReadsGoOn) {
  CrashLog log(top_);
  log.SetFaults([](const Operation&) { return Fault{.shortened = true}; });
  const std::string text = "a text of some length";
  ASSERT_TRUE(base::WriteFileAtomic(File("a"), text).ok());
  const auto read = base::ReadFile(File("a"));
  log.Stop();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text);
  EXPECT_GT(std::ranges::count(log.operations(), Kind::kWrite, &Operation::kind), 3);
}

TEST_F(CrashPointsTest, WhatWasNotSyncedIsDroppedKeptOrTorn) {
  Replay replay({});
  replay.Add({.kind = Kind::kCreate, .path = "a"});
  replay.Add({.kind = Kind::kSync, .path = ""});
  replay.Add(
      {.kind = Kind::kWrite, .path = "a", .content = std::make_shared<const std::string>("1234")});
  replay.Add({.kind = Kind::kCreate, .path = "b"});
  const Tree dropped = replay.Left(Unsynced::kDropped), kept = replay.Left(Unsynced::kKept);
  EXPECT_EQ(dropped.size(), 1U);
  EXPECT_EQ(*dropped.at("a"), "");
  EXPECT_EQ(kept, replay.Live());
  EXPECT_EQ(*kept.at("a"), "1234");
  EXPECT_TRUE(kept.contains("b"));
  EXPECT_EQ(*replay.Left(Unsynced::kTorn).at("a"), "12");
}

}  // namespace
}  // namespace mt::crash
