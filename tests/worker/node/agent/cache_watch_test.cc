// The cache within its size: what was used longest ago goes first, and nothing that is not ours.
#include "worker/node/agent/cache_watch.h"

#include <cstdlib>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/files.h"

namespace mt::node {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;

class CacheWatchTest : public ::testing::Test {
 protected:
  CacheWatchTest() {
    char pattern[] = "/tmp/mt-cache-test-XXXXXX";
    root_ = mkdtemp(pattern);
    now_ = fs::file_time_type::clock::now();
  }
  ~CacheWatchTest() override { fs::remove_all(root_); }

  void Put(const std::string& name, size_t bytes, hours age) {
    const fs::path path = fs::path(root_) / name;
    fs::create_directories(path.parent_path());
    // Complete under its name: a watch may remove it the moment it is there.
    const fs::path aside = path.string() + ".aside";
    ASSERT_TRUE(base::WriteFileAtomic(aside.string(), std::string(bytes, 'x')).ok());
    fs::last_write_time(aside, now_ - age);
    fs::rename(aside, path);
  }
  // Of paths alone: a watch may remove a file while it is listed.
  std::set<std::string> Left() const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      if (!entry.is_directory()) names.insert(entry.path().lexically_relative(root_).string());
    }
    return names;
  }

  std::string root_;
  fs::file_time_type now_;
};

TEST_F(CacheWatchTest, TheLongestUnusedGoesFirst) {
  Put("index/a.mtindex", 100, hours(5));
  Put("index/b.mtindex", 100, hours(50));
  Put("team/c.mtindex", 100, hours(1));
  Put("tuning/h200.json", 1000, hours(900));
  Put("index/notes", 1000, hours(900));
  const CacheTrim none = TrimCache(root_, 300, now_);
  EXPECT_EQ(none.removed, 0);
  EXPECT_EQ(none.left, 300);
  const CacheTrim one = TrimCache(root_, 299, now_);
  EXPECT_EQ(one.removed, 100);
  EXPECT_EQ(one.left, 200);
  EXPECT_EQ(Left(), (std::set<std::string>{"index/a.mtindex", "team/c.mtindex", "tuning/h200.json",
                                           "index/notes"}));
  TrimCache(root_, 0, now_);
  EXPECT_EQ(Left(), (std::set<std::string>{"tuning/h200.json", "index/notes"}));
}

TEST_F(CacheWatchTest, OwnersAreTold) {
  // A header whose image has 44 bytes, the image, and the name as worker/data/FORMAT.md has it.
  const auto file = [](const std::string& owner) {
    std::string bytes(128 + 44 + 128, '\0');
    bytes[40] = 44;
    return bytes.replace(128 + 44, owner.size(), owner);
  };
  for (const auto& [name, owner, age] :
       {std::tuple("a", "team/gpt", 5), {"b", "team/gpt", 50}, {"c", "other/x\n", 40}}) {
    Put(std::string(name) + ".mtindex", 0, hours(age));
    const fs::path path = fs::path(root_) / (std::string(name) + ".mtindex");
    ASSERT_TRUE(base::WriteFileAtomic(path.string(), file(owner)).ok());
    fs::last_write_time(path, now_ - hours(age));
  }
  Put("nameless.mtindex", 172, hours(1));
  const CacheTrim trim = TrimCache(root_, 800, now_);
  EXPECT_EQ(trim.removed_of, (std::map<std::string, int64_t>{{"team/gpt", 300}}));
  EXPECT_EQ(trim.left_of.size(), 3U);
  EXPECT_EQ(trim.left_of.at("team/gpt"), 300);
  EXPECT_EQ(trim.left_of.at(""), 172);
  EXPECT_EQ(trim.left, 772);
}

TEST_F(CacheWatchTest, WhatABuilderHasLeftGoesAfterADay) {
  Put("index/a.mtindex.tmp.AbCdEf", 100, hours(25));
  Put("index/b.mtindex.tmp.GhIjKl", 100, hours(23));  // somebody may be writing it
  const CacheTrim trim = TrimCache(root_, 1000, now_);
  EXPECT_EQ(trim.removed, 100);
  EXPECT_EQ(Left(), std::set<std::string>{"index/b.mtindex.tmp.GhIjKl"});
}

TEST_F(CacheWatchTest, LinksAreNotFollowed) {
  Put("elsewhere/a.mtindex", 100, hours(1));
  fs::create_directories(fs::path(root_) / "cache");
  fs::create_directory_symlink(fs::path(root_) / "elsewhere", fs::path(root_) / "cache/folder");
  fs::create_symlink(fs::path(root_) / "elsewhere/a.mtindex", fs::path(root_) / "cache/b.mtindex");
  TrimCache(root_ + "/cache", 0, now_);
  EXPECT_TRUE(base::Exists(root_ + "/elsewhere/a.mtindex"));
}

TEST_F(CacheWatchTest, AMissingFolderIsEmpty) {
  EXPECT_EQ(TrimCache(root_ + "/nowhere", 0, now_).left, 0);
}

TEST_F(CacheWatchTest, TheThreadTrimsAgainAndAgain) {
  Put("a.mtindex", 100, hours(1));
  const CacheWatch watch(root_, 10, std::chrono::milliseconds(2));
  const auto empties = [this] {
    for (int i = 0; i < 2000 && !Left().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return Left().empty();
  };
  EXPECT_TRUE(empties());
  Put("b.mtindex", 100, hours(1));
  EXPECT_TRUE(empties());
}

}  // namespace
}  // namespace mt::node
