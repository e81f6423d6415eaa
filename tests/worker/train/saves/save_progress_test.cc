// What is seen of saves while they go on: how far they have come, one whose storage hangs, and the
// copies in a second directory.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/mutex.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::train {
namespace {

using std::chrono::seconds;

// The activities and second copies of one rank, which any thread may report.
class ActivityRecorder final : public TrainObserver {
 public:
  void OnActivity(const Activity& activity) override {
    base::MutexLock lock(&mu_);
    std::vector<Activity>& seen = seen_[activity.kind];
    seen.push_back(activity);
    open_[activity.kind] = true;
  }
  void OnActivityEnd(ActivityKind kind) override {
    base::MutexLock lock(&mu_);
    open_[kind] = false;
  }
  void OnSecondCopy(const SecondCopyRecord& result) override {
    base::MutexLock lock(&mu_);
    copies_.push_back(result);
  }
  std::vector<Activity> Of(ActivityKind kind) {
    base::MutexLock lock(&mu_);
    return seen_[kind];
  }
  int num_open() {
    base::MutexLock lock(&mu_);
    int open = 0;
    for (const auto& [kind, is_open] : open_) open += is_open ? 1 : 0;
    return open;
  }
  std::vector<SecondCopyRecord> copies() {
    base::MutexLock lock(&mu_);
    return copies_;
  }

 private:
  base::Mutex mu_;
  std::map<ActivityKind, std::vector<Activity>> seen_ GUARDED_BY(mu_);
  std::map<ActivityKind, bool> open_ GUARDED_BY(mu_);
  std::vector<SecondCopyRecord> copies_ GUARDED_BY(mu_);
};

class SaveProgressTest : public TrainTest {
 protected:
  void Record(ActivityRecorder* recorder) {
    adjust_ = [recorder](int rank, TrainArgs* args) {
      if (rank == 0) args->observer = recorder;
    };
  }
  std::string Second(int64_t step) const {
    return dir_.path() + "/checkpoints/copies/" + checkpoint::FolderName({step, 1});
  }
};

TEST_F(SaveProgressTest, WhatARunIsBusyWithIsReported) {
  layout_ = {"parallel.data=2"};
  for (const char* const async : {"false", "true"}) {
    ActivityRecorder recorder;
    Record(&recorder);
    const std::vector<std::string> job = {std::string("checkpoint.async_save=") + async,
                                          "checkpoint.every_iters=8",
                                          std::string("checkpoint.directory=") + async,
                                          "training.eval.every_iters=5", "training.eval.iters=1"};
    const auto ranks = Run(job, {{9, {CommandKind::kStopWithSave, "stop"}}});
    ASSERT_TRUE(ranks[0].result.status.ok()) << ranks[0].result.status;
    EXPECT_EQ(recorder.num_open(), 0) << "every activity ends";
    EXPECT_FALSE(recorder.Of(ActivityKind::kIndexing).empty());
    const std::vector<Activity> first = recorder.Of(ActivityKind::kFirstStep);
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first[0].step, 1);
    EXPECT_EQ(first[0].total, 2) << "microbatches of this rank: 8 samples, 2 ranks, 2 a microbatch";
    const std::vector<Activity> evaluated = recorder.Of(ActivityKind::kEvaluating);
    ASSERT_FALSE(evaluated.empty());
    EXPECT_EQ(evaluated[0].step, 5);
    EXPECT_EQ(evaluated[0].done, 0);
    EXPECT_EQ(evaluated.back().done + 1, evaluated.back().total);
    const std::vector<Activity> saved = recorder.Of(ActivityKind::kSaving);
    ASSERT_GT(saved.size(), 2U);
    EXPECT_EQ(saved[0].step, 8);
    EXPECT_EQ(saved[0].done, 0);
    EXPECT_EQ(saved.back().step, 10);
    EXPECT_EQ(saved.back().done, saved.back().total);
    // Three fp64 states of half the parameters.
    int64_t stored = 0;
    const std::string folder = dir_.path() + "/checkpoints/" + async + "/" +
                               checkpoint::FolderName({10, 1}) + "/rank-00000.safetensors";
    stored = static_cast<int64_t>(std::filesystem::file_size(folder));
    EXPECT_LT(saved.back().total, stored);
    EXPECT_GT(saved.back().total, stored * 3 / 4) << "the rest is the header";

    ActivityRecorder again;
    Record(&again);
    const auto resumed = Run(job);
    ASSERT_TRUE(resumed[0].result.status.ok()) << resumed[0].result.status;
    const std::vector<Activity> loaded = again.Of(ActivityKind::kLoading);
    ASSERT_GT(loaded.size(), 1U);
    EXPECT_EQ(loaded[0].step, 10);
    EXPECT_GT(loaded.back().done, 0);
    EXPECT_EQ(again.num_open(), 0);
  }
}

// P1: storage that does not answer fails the save for those who wait, not the run.
TEST_F(SaveProgressTest, ASaveThatHangsIsReportedAndTrainingGoesOn) {
  layout_ = {"parallel.data=2"};
  base::ManualClock clock;
  clock_ = &clock;
  std::atomic<bool> answers = false;
  std::atomic<bool> written = false;
  std::atomic<bool> over = false;
  adjust_ = [&](int rank, TrainArgs* args) {
    args->checkpoint_failpoint = [&, rank](std::string_view point) {
      while (rank == 1 && point == "shard" && !answers)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (rank == 0 && point == "shard") written = true;
      if (rank == 0 && point == "over") over = true;
      return OkStatus();
    };
    if (rank != 0) return;
    args->after_step = [&](int64_t step, const params::ParamStore&) {
      // The last progress is seen between the steps 7 and 8.
      while (step == 7 && !written) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (step == 8) clock.Advance(seconds(899));
      if (step == 12) clock.Advance(seconds(1));
      if (step == 17) answers = true;
      while (step == 17 && !over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
  };
  const auto ranks = Run({"checkpoint.async_save=true", "checkpoint.keep_last=9"},
                         {{2, {CommandKind::kCheckpointNow, "save"}}});
  ExpectClean(ranks, 20);
  const Observed& seen = ranks[0].seen;
  ASSERT_EQ(seen.failed_saves.size(), 1U) << "once";
  EXPECT_EQ(seen.failed_saves[0].first, 3);
  const Status& why = seen.failed_saves[0].second;
  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(base::Message(why).find("step 3 has written nothing for 900 s"), std::string::npos)
      << why;
  ASSERT_EQ(seen.commands_done.size(), 1U);
  EXPECT_EQ(seen.commands_done[0].error, why) << "who has asked is answered";
  // The storage answers at last: the checkpoint counts.
  ASSERT_EQ(seen.saves.size(), 1U);
  EXPECT_EQ(seen.saves[0].step, 3);
  EXPECT_EQ(StepsOnDisk(), std::vector<int64_t>{3});
}

TEST_F(SaveProgressTest, CheckpointsAreCopiedToTheSecondDirectory) {
  layout_ = {"parallel.data=2"};
  ActivityRecorder recorder;
  Record(&recorder);
  const std::vector<std::string> job = {"checkpoint.every_iters=5", "checkpoint.keep_last=2",
                                        "checkpoint.second=copies", "training.eval.every_iters=10",
                                        "training.eval.iters=1"};
  const auto ranks = Run(job);
  ASSERT_TRUE(ranks[0].result.status.ok()) << ranks[0].result.status;
  const std::vector<SecondCopyRecord> copies = recorder.copies();
  ASSERT_FALSE(copies.empty());
  for (const auto& copy : copies) EXPECT_TRUE(copy.status.ok()) << copy.status;
  EXPECT_EQ(copies.back().step, 20) << "the last one is waited for";
  // It is a copy to the bit, with the loss of its step, and loads as any other.
  const std::string original = dir_.path() + "/checkpoints/tiny/step-00000020-e0001";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(original)) {
    ++files;
    const std::string name = entry.path().filename().string();
    const auto a = base::ReadFile(original + "/" + name);
    const auto b = base::ReadFile(Second(20) + "/" + name);
    ASSERT_TRUE(b.ok()) << b.status();
    EXPECT_TRUE(*a == *b) << name;
  }
  EXPECT_GE(files, 4) << "two files, the manifest, the loss";
  adjust_ = nullptr;
  const auto loaded = Run({"checkpoint.load=copies/step-00000020-e0001",
                           "checkpoint.directory=other", "training.exit_at_iter=20"});
  ASSERT_TRUE(loaded[0].result.status.ok()) << loaded[0].result.status;
  EXPECT_EQ(loaded[0].seen.infos[0].resumed_from_step, 20);
}

// A second directory that cannot be written costs the run nothing but the copies.
TEST_F(SaveProgressTest, ASecondDirectoryThatFailsStopsNothing) {
  std::filesystem::create_directories(dir_.path() + "/checkpoints");
  ASSERT_TRUE(base::WriteFileAtomic(dir_.path() + "/checkpoints/copies", "no directory").ok());
  ActivityRecorder recorder;
  Record(&recorder);
  const auto ranks = Run({"checkpoint.every_iters=10", "checkpoint.second=copies"});
  ASSERT_TRUE(ranks[0].result.status.ok()) << ranks[0].result.status;
  EXPECT_TRUE(ranks[0].result.completed);
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{10, 20}));
  const std::vector<SecondCopyRecord> copies = recorder.copies();
  ASSERT_FALSE(copies.empty());
  for (const auto& copy : copies) EXPECT_FALSE(copy.status.ok());
}

}  // namespace
}  // namespace mt::train
