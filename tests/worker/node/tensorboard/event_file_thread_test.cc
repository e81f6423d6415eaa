// The thread that writes event files: where they lie, in which order readers see them, and what
// becomes of steps that cannot be written.
#include "worker/node/tensorboard/event_file_thread.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"

namespace mt::node {
namespace {

using testing::ElementsAre;

// Whether it comes true, within what the busiest machine takes.
bool Await(const std::function<bool()>& there) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!there() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return there();
}

class EventFileThreadTest : public testing::Test {
 protected:
  EventFileThreadTest() {
    char pattern[] = "/tmp/mt-events-test-XXXXXX";
    dir_ = mkdtemp(pattern);
    place_ = {.log_root = dir_, .folder = "curves/demo-abc", .label = "abc-1"};
    Restart();
  }
  ~EventFileThreadTest() override {
    files_.reset();
    std::filesystem::remove_all(dir_);
  }
  // Everything is written when this returns.
  void Restart(size_t most = EventFileThread::kMaxQueuedBytes) {
    files_.reset();
    files_ = std::make_unique<EventFileThread>(&clock_, most);
  }
  // Names in the order in which readers take them, each with what it holds.
  std::vector<std::string> Files() const {
    std::vector<std::string> out;
    const std::string folder = dir_ + "/" + place_.folder;
    if (!base::Exists(folder)) return out;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      out.push_back(entry.path().filename().string() + ": " +
                    base::ReadFile(entry.path().string()).value_or("?"));
    std::sort(out.begin(), out.end());
    return out;
  }
  unsigned ModeOf(const std::string& path) const {
    struct stat info {};
    EXPECT_EQ(::stat((dir_ + "/" + path).c_str(), &info), 0) << path;
    return info.st_mode & 07777U;
  }

  base::ManualClock clock_;  // begins at 1576803600 s
  std::string dir_;
  EventFilePlace place_;
  std::unique_ptr<EventFileThread> files_;
};

TEST_F(EventFileThreadTest, AFileForEachBeginningAndLaterOnesSortBehind) {
  files_->Begin(place_, "head,");
  files_->Append(place_, "one,");
  files_->Append(place_, "two");
  Restart();
  EventFilePlace next = place_;
  next.label = "abc-2";
  files_->Begin(next, "again");
  files_->Close(next);
  Restart();
  EXPECT_THAT(Files(), ElementsAre("events.out.tfevents.1576803600.abc-1: head,one,two",
                                   "events.out.tfevents.1576803601.abc-2: again"))
      << "also where the clock stands still";
  clock_.Advance(std::chrono::hours(1));
  next.label = "abc-3";
  files_->Begin(next, "later");
  Restart();
  EXPECT_EQ(Files().back(), "events.out.tfevents.1576807200.abc-3: later");
}

TEST_F(EventFileThreadTest, OthersCannotReadThem) {
  const mode_t before = ::umask(0);
  files_->Begin(place_, "head");
  Restart();
  ::umask(before);
  EXPECT_EQ(ModeOf("curves/demo-abc"), 0750U);
  EXPECT_EQ(ModeOf("curves/demo-abc/events.out.tfevents.1576803600.abc-1"), 0640U);
}

TEST_F(EventFileThreadTest, ALinkOutOfTheLogRootIsRefused) {
  const std::string outside = dir_ + "-outside";
  std::filesystem::create_directory(outside);
  std::filesystem::create_directory_symlink(outside, dir_ + "/curves");
  files_->Begin(place_, "head");
  Restart();
  EXPECT_TRUE(std::filesystem::is_empty(outside));
  std::filesystem::remove_all(outside);
}

TEST_F(EventFileThreadTest, AFileThatCouldNotBeMadeBeginsWithItsHeadOnceItCan) {
  // A file where the folder should be.
  ASSERT_TRUE(base::WriteFileAtomic(dir_ + "/curves", "").ok());
  files_->Begin(place_, "head,");
  files_->Append(place_, "lost,");
  const auto written = [this] {
    const auto files = Files();
    return !files.empty() && files[0].ends_with("kept,");
  };
  // What waits is done in order: once another file is there, the above was tried.
  EventFilePlace other = place_;
  other.folder = "other";
  files_->Begin(other, "x");
  ASSERT_TRUE(Await([&] { return base::Exists(dir_ + "/other"); }));
  std::filesystem::remove(dir_ + "/curves");
  files_->Append(place_, "kept,");
  ASSERT_TRUE(Await(written));
  EXPECT_THAT(Files(), ElementsAre("events.out.tfevents.1576803600.abc-1: head,kept,"));
}

TEST_F(EventFileThreadTest, AFullDiskLosesWholeRecords) {
  const auto signal_before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 10;  // bytes of a file
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  files_->Begin(place_, "head,");
  files_->Append(place_, "too long");  // five bytes of it find room
  files_->Append(place_, "fits.");
  Restart();
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, signal_before);
  EXPECT_THAT(Files(), ElementsAre("events.out.tfevents.1576803600.abc-1: head,fits."));
}

TEST_F(EventFileThreadTest, WhatWaitsIsBoundedButForBeginnings) {
  Restart(/*most=*/4);
  files_->Begin(place_, "head,");
  files_->Append(place_, "too much at once");
  Restart();
  EXPECT_THAT(Files(), ElementsAre("events.out.tfevents.1576803600.abc-1: head,"));
}

}  // namespace
}  // namespace mt::node
