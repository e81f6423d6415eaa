// Checkpoints, fences and crashes that lose whatever was not synced: after every file operation of
// a save by two ranks, of a takeover and of a removal, in every state that a crash may leave then.
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/common/base/crash_log.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/comm/group_harness.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/root_marker.h"
#include "worker/checkpoint/loader.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/writer.h"
#include "worker/comm/threads/hub.h"

namespace mt::checkpoint {
namespace {

using crash::CrashLog;

constexpr int kRanks = 2;
constexpr int64_t kRows = 3, kColumns = 5;  // of each rank

// Of the tensor [kRanks * kRows, kColumns] that is saved at this step.
std::vector<double> Values(int64_t step) {
  std::vector<double> values(kRanks * kRows * kColumns);
  std::iota(values.begin(), values.end(), 1000.5 * static_cast<double>(step));
  return values;
}

SaveArgs PartOfRank(const std::string& directory, int64_t step, int rank,
                    const std::vector<double>& values) {
  SaveArgs args;
  args.directory = directory;
  args.manifest.step = step;
  args.manifest.epoch = 1;
  args.manifest.spec_json = "{}";
  args.slices = {{.key = "weights/w",
                  .dtype = kernels::DType::kF64,
                  .global_shape = {kRanks * kRows, kColumns},
                  .offset = {rank * kRows, 0},
                  .shape = {kRows, kColumns},
                  .data = values.data() + rank * kRows * kColumns}};
  return args;
}

// A save by both ranks; the statuses that they get.
std::vector<Status> Save(const std::string& directory, int64_t step) {
  const std::vector<double> values = Values(step);
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<Status> statuses(kRanks);
  std::vector<std::thread> threads;
  threads.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = hub.Create({.name = "world", .members = {0, 1}, .my_index = rank}).value();
      comm::InlineStream stream;
      SaveArgs args = PartOfRank(directory, step, rank, values);
      args.group = group.get();
      args.stream = &stream;
      statuses[static_cast<size_t>(rank)] = SaveCheckpoint(args).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

Status Load(const std::string& directory, const CheckpointId& id) {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory, id));
  std::vector<double> values(kRanks * kRows * kColumns, -1);
  LoadArgs args{
      .directory = directory, .id = id, .manifest = &manifest, .slices = {}, .progress = {}};
  args.slices = {{.key = "weights/w",
                  .dtype = kernels::DType::kF64,
                  .global_shape = {kRanks * kRows, kColumns},
                  .offset = {0, 0},
                  .shape = {kRanks * kRows, kColumns},
                  .data = values.data()}};
  RETURN_IF_ERROR(LoadTensors(args));
  return values == Values(id.step) ? OkStatus() : base::DataLoss("wrong values");
}

// The steps that readers find there.
std::set<int64_t> StepsIn(const std::string& directory) {
  std::set<int64_t> steps;
  const std::vector<CheckpointId> all = ListCheckpoints(directory).value();
  for (const CheckpointId& id : all) steps.insert(id.step);
  return steps;
}

std::string Text(const std::set<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += " " + std::to_string(step);
  return text;
}

class DurabilityTest : public ::testing::Test {
 protected:
  DurabilityTest() { std::filesystem::create_directory(disk_); }

  // What is wrong with a directory that must have the steps `surely` and may have `perhaps`; each
  // that a reader finds must load, byte by byte.
  std::string Complaint(const std::string& directory, const std::set<int64_t>& surely,
                        const std::set<int64_t>& perhaps = {}) {
    const std::set<int64_t> steps = StepsIn(directory);
    found_.insert(steps);
    for (const int64_t step : surely) {
      if (!steps.contains(step)) return "there are only the steps" + Text(steps);
    }
    for (const int64_t step : steps) {
      if (!surely.contains(step) && !perhaps.contains(step)) return "too many:" + Text(steps);
      const Status loaded = Load(directory, {step, 1});
      if (!loaded.ok()) return "step " + std::to_string(step) + ": " + base::Message(loaded);
    }
    return "";
  }

  // Every crash after n operations, from <= n <= to; `complaint` says what is wrong with a folder.
  void ExpectAfterCrashes(const CrashLog& log, size_t from, size_t to,
                          const std::function<std::string(const std::string& left)>& complaint) {
    const std::string first = log.FirstComplaint(from, to, after_, complaint);
    EXPECT_TRUE(first.empty()) << first;
  }

  // Step 20 is saved beside step 10; every crash before and after its end.
  void ExpectWholeOrNotAtAll() {
    CrashLog log(disk_);
    for (const Status& status : Save(directory_, 20)) ASSERT_TRUE(status.ok()) << status;
    log.Stop();
    ASSERT_EQ(log.Check(), "");
    const size_t all = log.operations().size();
    ExpectAfterCrashes(log, 0, all, [&](const std::string& left) {
      return Complaint(left + "/ckpt", {10}, {20});
    });
    EXPECT_EQ(found_, (std::set<std::set<int64_t>>{{10}, {10, 20}}));
    ExpectAfterCrashes(log, all, all, [&](const std::string& left) {
      return Complaint(left + "/ckpt", {10, 20});
    });
  }

  TempDir dir_;
  const std::string top_ = std::filesystem::canonical(dir_.path()).string();
  const std::string disk_ = top_ + "/disk", after_ = top_ + "/after";
  const std::string directory_ = disk_ + "/ckpt";
  std::set<std::set<int64_t>> found_;
};

using CheckpointDurabilityTest = DurabilityTest;

TEST_F(CheckpointDurabilityTest, ASaveIsWholeOrNotThereAndTheOlderOneStays) {
  for (const Status& status : Save(directory_, 10)) ASSERT_TRUE(status.ok()) << status;
  ExpectWholeOrNotAtAll();
}

// A save of the same step that a crash has cut short left its folder behind, almost done.
TEST_F(CheckpointDurabilityTest, WhatACrashHasLeftDoesNotMixWithTheNextSave) {
  for (const Status& status : Save(directory_, 10)) ASSERT_TRUE(status.ok()) << status;
  const std::string left = directory_ + "/" + FolderName({20, 1}) + ".tmp";
  std::filesystem::copy(directory_ + "/" + FolderName({10, 1}), left);
  ExpectWholeOrNotAtAll();
}

TEST_F(CheckpointDurabilityTest, TheFirstSaveMakesItsDirectoryDurable) {
  const std::string relative = "/jobs/one/ckpt";
  CrashLog log(disk_);
  for (const Status& status : Save(disk_ + relative, 10)) ASSERT_TRUE(status.ok()) << status;
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  const size_t all = log.operations().size();
  ExpectAfterCrashes(log, 0, all,
                     [&](const std::string& left) { return Complaint(left + relative, {}, {10}); });
  ExpectAfterCrashes(log, all, all,
                     [&](const std::string& left) { return Complaint(left + relative, {10}); });
}

// Each rank syncs its file and the folder that it made it in, since only its own host can be relied
// upon to do that where the directory is shared.
TEST_F(CheckpointDurabilityTest, EveryShardIsDurableBeforeTheManifestIsWritten) {
  CrashLog log(disk_);
  for (const Status& status : Save(directory_, 20)) ASSERT_TRUE(status.ok()) << status;
  log.Stop();
  const std::string folder = "ckpt/" + FolderName({20, 1}) + ".tmp/";
  size_t manifest = 0;
  while (!log.operations()[manifest].path.starts_with(folder + std::string(kManifestName))) {
    ASSERT_LT(++manifest, log.operations().size());
  }
  for (const char* shard :
       {"rank-00000.safetensors", "rank-00001.safetensors", "rank-00000.json", "rank-00001.json"}) {
    EXPECT_TRUE(log.IsDurable(manifest, folder + shard)) << shard;
  }
}

TEST_F(CheckpointDurabilityTest, ASyncThatFailsFailsTheSaveOnAllRanks) {
  for (const Status& status : Save(directory_, 10)) ASSERT_TRUE(status.ok()) << status;
  int nth = 0;
  for (bool failed = true; failed;) {
    std::filesystem::remove_all(directory_ + "/" + FolderName({20, 1}));
    CrashLog log(disk_);
    log.FailSync(++nth);
    const std::vector<Status> statuses = Save(directory_, 20);
    log.Stop();
    failed = !statuses[0].ok();
    EXPECT_EQ(statuses[0].ok(), statuses[1].ok()) << statuses[0] << statuses[1];
    if (failed) {
      EXPECT_NE(base::Message(statuses[0]).find("fsync"), std::string::npos) << statuses[0];
    }
    EXPECT_EQ(Complaint(directory_, {10}, {20}), "");
  }
  // Two shards, two manifests of ranks with their folder, the manifest with it, the directory: one
  // beyond. The folder is not in the directory for good before it has its final name.
  EXPECT_EQ(nth, 10);
}

TEST_F(CheckpointDurabilityTest, ARemovalLeavesNoCheckpointInParts) {
  for (int64_t step = 1; step <= 4; ++step) {
    for (const Status& status : Save(directory_, step)) ASSERT_TRUE(status.ok()) << status;
  }
  CrashLog log(disk_);
  ASSERT_EQ(
      PruneCheckpoints({.directory = directory_, .rules = {.keep_last = 2}, .epoch = 1})->size(),
      2U);
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  ExpectAfterCrashes(log, 0, log.operations().size(), [&](const std::string& left) {
    return Complaint(left + "/ckpt", {3, 4}, {1, 2});
  });
  EXPECT_TRUE(found_.contains({3, 4}));
  EXPECT_TRUE(found_.contains({1, 2, 3, 4}));
}

// The new label is written before the old one goes.
TEST_F(CheckpointDurabilityTest, ATagThatMovesIsAlwaysOnACheckpoint) {
  for (int64_t step = 1; step <= 2; ++step) {
    for (const Status& status : Save(directory_, step)) ASSERT_TRUE(status.ok()) << status;
  }
  const Label label{.tag = "best", .meta = {{"k", "v"}}};
  ASSERT_TRUE(WriteLabel(directory_, {1, 1}, label).ok());
  CrashLog log(disk_);
  ASSERT_TRUE(WriteLabel(directory_, {2, 1}, label).ok());
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  const size_t all = log.operations().size();
  std::set<int64_t> found;
  ExpectAfterCrashes(log, 0, all, [&](const std::string& left) -> std::string {
    const auto id = FindByTag(left + "/ckpt", "best");
    if (!id.ok()) return base::Message(id.status());
    found.insert(id->step);
    const auto there = ReadLabel(left + "/ckpt/" + FolderName(*id));
    return there.ok() && *there == label ? "" : "another label";
  });
  EXPECT_EQ(found, (std::set<int64_t>{1, 2}));
  ExpectAfterCrashes(log, all, all, [&](const std::string& left) -> std::string {
    if (HasLabel(left + "/ckpt/" + FolderName({1, 1}))) return "two checkpoints have the tag";
    return FindByTag(left + "/ckpt", "best")->step == 2 ? "" : "not moved";
  });
}

class FenceDurabilityTest : public DurabilityTest {
 protected:
  FenceDurabilityTest() { std::filesystem::create_directory(directory_); }

  static StatusOr<Fence> Raise(const std::string& directory, int64_t epoch) {
    return RaiseFence({.directory = directory,
                       .job_uid = "job",
                       .epoch = epoch,
                       .ended_job_uids = {},
                       .failpoint = nullptr});
  }

  // Every crash in a takeover by epoch 7, where `old` held the directory before.
  void ExpectOldOrNew(const std::optional<Fence>& old) {
    CrashLog log(disk_);
    const auto raised = Raise(directory_, 7);
    ASSERT_TRUE(raised.ok()) << raised.status();
    log.Stop();
    ASSERT_EQ(log.Check(), "");
    const size_t all = log.operations().size();
    const auto of_crash = [&](const std::string& left) -> std::string {
      const auto fence = ReadFence(left + "/ckpt");
      if (!fence.ok()) return base::Message(fence.status());
      const std::string token = *fence ? (*fence)->token : "";
      if (token != raised->token && token != (old ? old->token : "")) return "another's token";
      // Whoever comes next can take over, and in a directory epoch of its own.
      const auto next = Raise(left + "/ckpt", 8);
      if (!next.ok()) return base::Message(next.status());
      return *fence && next->directory_epoch <= (*fence)->directory_epoch ? "an old epoch" : "";
    };
    ExpectAfterCrashes(log, 0, all, of_crash);
    const auto once_done = [&](const std::string& left) -> std::string {
      const auto fence = ReadFence(left + "/ckpt");
      if (!fence.ok()) return base::Message(fence.status());
      if (!*fence) return "no fence";
      return ToJson(**fence) == ToJson(*raised) ? "" : "not the fence that was raised";
    };
    ExpectAfterCrashes(log, all, all, once_done);
  }
};

TEST_F(FenceDurabilityTest, TheFirstFenceIsThereOnceItIsRaised) { ExpectOldOrNew(std::nullopt); }

TEST_F(FenceDurabilityTest, ATakeoverIsTheOldFenceOrTheNewOneAndStays) {
  const Fence old = Raise(directory_, 3).value();
  for (const Status& status : Save(directory_, 10)) ASSERT_TRUE(status.ok()) << status;
  ExpectOldOrNew(old);
}

// Before the newest checkpoint is looked for, the fence that closes the older epochs must be
// durable: else a crash could bring back a holder that commits behind the base.
TEST_F(FenceDurabilityTest, TheFenceIsDurableBeforeTheCheckpointIsLookedFor) {
  ASSERT_TRUE(Raise(directory_, 3).ok());
  CrashLog log(disk_);
  ASSERT_TRUE(RaiseFence({.directory = directory_,
                          .job_uid = "job",
                          .epoch = 7,
                          .ended_job_uids = {},
                          .failpoint =
                              [&](std::string_view point) {
                                log.Mark(point);
                                return OkStatus();
                              }})
                  .ok());
  log.Stop();
  EXPECT_TRUE(log.IsDurable(log.Before("raised"), "ckpt/FENCE"));
  const auto raised = ParseFence(*log.Live(log.Before("raised")).at("ckpt/FENCE"));
  ASSERT_TRUE(raised.ok()) << raised.status();
  EXPECT_EQ(raised->epoch, 7);
}

TEST_F(FenceDurabilityTest, ASyncThatFailsRaisesNoFence) {
  int nth = 0;
  for (bool failed = true; failed;) {
    CrashLog log(disk_);
    log.FailSync(++nth);
    failed = !Raise(directory_, nth).ok();
  }
  EXPECT_EQ(nth, 5);  // two writings, each of a file and its folder: one beyond
}

using RootMarkerDurabilityTest = DurabilityTest;

TEST_F(RootMarkerDurabilityTest, AMarkerIsWholeOrNotThereAndStaysOnceItWasReturned) {
  CrashLog log(disk_);
  const auto made = EnsureRootMarker(disk_, "node");
  ASSERT_TRUE(made.ok()) << made.status();
  log.Stop();
  ASSERT_EQ(log.Check(), "");
  const size_t all = log.operations().size();
  ExpectAfterCrashes(log, 0, all, [](const std::string& left) -> std::string {
    const auto marker = ReadRootMarker(left);
    if (!marker.ok()) return base::Message(marker.status());
    return EnsureRootMarker(left, "next").ok() ? "" : "it cannot be made again";
  });
  ExpectAfterCrashes(log, all, all, [&](const std::string& left) -> std::string {
    const auto marker = ReadRootMarker(left);
    return marker.ok() && *marker && (*marker)->id == made->id ? "" : "the marker is gone";
  });
}

}  // namespace
}  // namespace mt::checkpoint
