// Ownership of a checkpoint directory: takeovers and refusals, a late commit of a fenced run, a
// crash at each point of a takeover, contenders.
#include "worker/checkpoint/format/fence.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/file.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

class FenceTest : public ::testing::Test {
 protected:
  FenceTest() { std::filesystem::create_directories(directory_); }

  StatusOr<Fence> Raise(const std::string& uid, int64_t epoch,
                        std::vector<std::string> ended = {}) {
    return RaiseFence({.directory = directory_,
                       .job_uid = uid,
                       .epoch = epoch,
                       .ended_job_uids = std::move(ended),
                       .failpoint = failpoint_});
  }
  // A save of this step by the holder of `fence`.
  Status Save(int64_t step, const Fence& fence,
              const std::function<Status(std::string_view)>& failpoint = nullptr) {
    SaveArgs args;
    args.directory = directory_;
    args.manifest.step = step;
    args.manifest.epoch = fence.directory_epoch;
    args.manifest.job_uid = fence.job_uid;
    args.manifest.job_epoch = fence.epoch;
    args.manifest.spec_json = "{}";
    args.slices = {{.key = "weights/w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {2},
                    .offset = {0},
                    .shape = {2},
                    .data = values_}};
    args.fence = &fence;
    args.failpoint = failpoint;
    return SaveCheckpoint(args).status();
  }
  std::vector<CheckpointId> List() { return ListCheckpoints(directory_).value(); }
  bool OnDisk(const CheckpointId& id) {
    return base::Exists(base::JoinPath(directory_, FolderName(id)));
  }

  const double values_[2] = {1, 2};
  TempDir dir_;
  const std::string directory_ = dir_.File("ckpt");
  std::function<Status(std::string_view)> failpoint_;
};

void ExpectRefused(const Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  for (const std::string& part : parts) {
    EXPECT_NE(base::Message(status).find(part), std::string::npos) << part << " in " << status;
  }
}

TEST_F(FenceTest, EveryFieldComesBack) {
  const Fence fence{.job_uid = "u\"1",
                    .epoch = 7,
                    .directory_epoch = 12,
                    .holder = {.host = "node-a", .pid = 4242, .boot_id = "b"},
                    .token = "00ff",
                    .run = "r1",
                    .bases = {{3, CheckpointId{100, 2}}, {12, std::nullopt}}};
  const auto back = ParseFence(ToJson(fence));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->job_uid, fence.job_uid);
  EXPECT_EQ(back->epoch, 7);
  EXPECT_EQ(back->directory_epoch, 12);
  EXPECT_EQ(back->holder.host, "node-a");
  EXPECT_EQ(back->holder.pid, 4242);
  EXPECT_EQ(back->holder.boot_id, "b");
  EXPECT_EQ(back->token, "00ff");
  EXPECT_EQ(back->run, "r1");
  EXPECT_EQ(back->bases, fence.bases);
}

TEST_F(FenceTest, AnyBytesAreSafeAndDamageIsSaid) {
  const std::string whole = ToJson({.job_uid = "u", .directory_epoch = 2, .bases = {{2, {}}}});
  for (size_t n = 0; n + 2 < whole.size(); ++n) {
    EXPECT_EQ(ParseFence(whole.substr(0, n)).status().code(), absl::StatusCode::kDataLoss) << n;
  }
  std::string newer = whole;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_EQ(ParseFence(newer).status().code(), absl::StatusCode::kFailedPrecondition);
  std::ofstream(directory_ + "/FENCE") << "{}";
  const Status damaged = Raise("u", 9).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(base::Message(damaged).find("FENCE"), std::string::npos);
  EXPECT_FALSE(ListCheckpoints(directory_).ok()) << "no guess about what counts";
}

TEST_F(FenceTest, TheNextEpochOfAJobTakesOver) {
  const Fence first = Raise("job", 1).value();
  EXPECT_EQ(first.directory_epoch, 1);
  EXPECT_EQ(first.bases, (decltype(Fence::bases){{1, std::nullopt}}));
  EXPECT_EQ(first.holder.pid, ::getpid());
  ASSERT_TRUE(Save(10, first).ok());
  ASSERT_TRUE(Save(20, first).ok());
  const Fence second = Raise("job", 4).value();
  EXPECT_EQ(second.directory_epoch, 2);
  EXPECT_EQ(second.bases.at(2), (CheckpointId{20, 1}));
  EXPECT_TRUE(CheckFence(directory_, second).ok());
  ExpectRefused(CheckFence(directory_, first), {"fenced", "job job (epoch 4)", "epoch 1"});
  for (const int64_t epoch : {1, 3, 4}) {
    ExpectRefused(Raise("job", epoch).status(), {"is not above", directory_, "(epoch 4)"});
  }
  EXPECT_TRUE(CheckFence(directory_, second).ok()) << "refusals change nothing";
  const auto manifest = ReadManifest(directory_, {20, 1});
  EXPECT_EQ(manifest->job_uid, "job");
  EXPECT_EQ(manifest->job_epoch, 1);
}

TEST_F(FenceTest, AnotherJobOnlyOnceThisOneHasEnded) {
  const Fence first = Raise("old", 3).value();
  ASSERT_TRUE(Save(10, first).ok());
  ExpectRefused(Raise("new", 9).status(), {"job old (epoch 3)", "host", "remove", "FENCE"});
  ExpectRefused(Raise("new", 9, {"other"}).status(), {"job old"});
  const Fence next = Raise("new", 1, {"other", "old"}).value();
  EXPECT_EQ(next.directory_epoch, 2) << "the directory's own count";
  EXPECT_EQ(next.bases.at(2), (CheckpointId{10, 1}));
}

TEST_F(FenceTest, StandaloneRunsAndServiceJobs) {
  const Fence first = Raise("", 0).value();
  const Fence again = Raise("", 0).value();
  EXPECT_EQ(again.directory_epoch, 2);
  EXPECT_FALSE(CheckFence(directory_, first).ok());
  ASSERT_TRUE(Raise("job", 1).ok()) << "over a standalone run";
  ExpectRefused(Raise("", 0).status(), {"job job", "remove"});
  // What the message says to do.
  std::filesystem::remove(directory_ + "/FENCE");
  const auto after = Raise("", 0);
  ASSERT_TRUE(after.ok()) << after.status();
}

TEST_F(FenceTest, ADirectoryFromBeforeFencesIsTakenOver) {
  ASSERT_TRUE(Raise("", 0).ok());
  const Fence old = Raise("", 0).value();
  ASSERT_TRUE(Save(30, old).ok());
  std::filesystem::remove(directory_ + "/FENCE");
  std::filesystem::create_directories(directory_ + "/step-00000040-e0007.tmp");
  const Fence taken = Raise("job", 1).value();
  EXPECT_EQ(taken.directory_epoch, 8) << "above unfinished folders too";
  EXPECT_EQ(taken.bases, (decltype(Fence::bases){{8, CheckpointId{30, 2}}}));
}

// The old epoch has passed its check when the new one raises the fence, and commits afterwards.
TEST_F(FenceTest, ALateCommitIsHarmless) {
  const Fence old = Raise("job", 1).value();
  ASSERT_TRUE(Save(10, old).ok());
  std::optional<Fence> next;
  const Status late = Save(20, old, [&](std::string_view point) {
    if (point == "checked") next = Raise("job", 2).value();
    return OkStatus();
  });
  ASSERT_TRUE(late.ok()) << "it could not know";
  ASSERT_TRUE(OnDisk({20, 1}));
  EXPECT_EQ(next->bases.at(2), (CheckpointId{10, 1}));
  EXPECT_EQ(List(), (std::vector<CheckpointId>{{10, 1}})) << "beyond the base of the next epoch";
  EXPECT_EQ(FindNewest(directory_)->value(), (CheckpointId{10, 1}));
  EXPECT_FALSE(FindByName(directory_, "20").ok());
  // The new epoch saves the same step under its own name; its prune removes the stray folder.
  ASSERT_TRUE(Save(20, *next).ok());
  EXPECT_EQ(FindNewest(directory_)->value(), (CheckpointId{20, 2}));
  ASSERT_TRUE(PruneCheckpoints(
                  {.directory = directory_, .rules = {.keep_last = 5}, .epoch = 2, .fence = &*next})
                  .ok());
  EXPECT_FALSE(OnDisk({20, 1}));
  EXPECT_EQ(List(), (std::vector<CheckpointId>{{10, 1}, {20, 2}}));
  // The third epoch still ignores what the first one might bring.
  const Fence third = Raise("job", 3).value();
  std::filesystem::create_directories(directory_ + "/step-00000099-e0001");
  std::ofstream(directory_ + "/step-00000099-e0001/manifest.json") << "{}";
  EXPECT_EQ(FindNewest(directory_)->value(), (CheckpointId{20, 2}));
  EXPECT_EQ(third.bases.at(3), (CheckpointId{20, 2}));
}

TEST_F(FenceTest, ACommitBeforeTheNewEpochLookedIsItsBase) {
  const Fence old = Raise("job", 1).value();
  failpoint_ = [&](std::string_view point) {
    // Raised, but not looked yet: the check of a commit fails from here on; one that passed it
    // before may still rename.
    if (point != "raised") return OkStatus();
    ExpectRefused(Save(20, old), {"fenced"});
    std::filesystem::create_directories(directory_ + "/step-00000030-e0001");
    std::ofstream(directory_ + "/step-00000030-e0001/manifest.json") << "{}";
    return OkStatus();
  };
  const Fence next = Raise("job", 2).value();
  EXPECT_EQ(next.bases.at(2), (CheckpointId{30, 1}));
  EXPECT_EQ(List(), (std::vector<CheckpointId>{{30, 1}}));
}

TEST_F(FenceTest, AFencedRunNeitherCommitsNorDeletes) {
  const Fence old = Raise("job", 1).value();
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(Save(step, old).ok());
  // Fenced in the middle of a save.
  std::optional<Fence> next;
  ExpectRefused(Save(50, old,
                     [&](std::string_view point) {
                       if (point == "gathered") next = Raise("job", 2).value();
                       return OkStatus();
                     }),
                {"fenced", "job job (epoch 2)"});
  EXPECT_FALSE(OnDisk({50, 1}));
  // And before one: not even a folder.
  ExpectRefused(Save(60, old), {"fenced"});
  EXPECT_FALSE(base::Exists(directory_ + "/step-00000060-e0001.tmp"));
  ExpectRefused(PruneCheckpoints(
                    {.directory = directory_, .rules = {.keep_last = 2}, .epoch = 1, .fence = &old})
                    .status(),
                {"fenced"});
  EXPECT_EQ(List().size(), 4U);
  ASSERT_TRUE(PruneCheckpoints(
                  {.directory = directory_, .rules = {.keep_last = 2}, .epoch = 2, .fence = &*next})
                  .ok());
  EXPECT_EQ(List(), (std::vector<CheckpointId>{{30, 1}, {40, 1}}));
  EXPECT_FALSE(base::Exists(directory_ + "/step-00000050-e0001.tmp")) << "left by the fenced run";
}

void ExpectGone(const Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_NE(base::Message(status).find(part), std::string::npos) << status;
}

// The fence is gone: nobody can tell whose the directory is, and nothing is written.
TEST_F(FenceTest, ARemovedFenceFailsTheSave) {
  const Fence fence = Raise("job", 1).value();
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(Save(step, fence).ok());
  std::filesystem::remove(directory_ + "/FENCE");
  ExpectGone(Save(10, fence), "FENCE is gone");
  EXPECT_FALSE(base::Exists(directory_ + "/step-00000010-e0001.tmp"));
  ExpectGone(PruneCheckpoints(
                 {.directory = directory_, .rules = {.keep_last = 2}, .epoch = 1, .fence = &fence})
                 .status(),
             "FENCE is gone");
  // Gone in the middle of a save: what was written so far is not looked for.
  ASSERT_TRUE(RestoreFence(directory_, fence).ok());
  ExpectGone(Save(20, fence,
                  [&](std::string_view point) {
                    if (point == "gathered") std::filesystem::remove(directory_ + "/FENCE");
                    return OkStatus();
                  }),
             "FENCE is gone");
  EXPECT_EQ(List().size(), 3U);
  ASSERT_TRUE(RestoreFence(directory_, fence).ok());
  ASSERT_TRUE(Save(20, fence).ok());
}

TEST_F(FenceTest, AFolderThatIsGoneIsNotMadeAnew) {
  const Fence fence = Raise("job", 1).value();
  ASSERT_TRUE(Save(10, fence).ok());
  const std::string aside = directory_ + "-aside";
  std::filesystem::rename(directory_, aside);
  ExpectGone(Save(20, fence), "FENCE is gone");
  ExpectGone(RestoreFence(directory_, fence), "FENCE.lock");
  EXPECT_FALSE(base::Exists(directory_));
  std::filesystem::rename(aside, directory_);
  ASSERT_TRUE(Save(30, fence).ok());
  EXPECT_EQ(List(), (std::vector<CheckpointId>{{10, 1}, {30, 1}}));
}

TEST_F(FenceTest, ARestoredFenceIsTheOneThatWas) {
  ASSERT_TRUE(Save(10, Raise("job", 1).value()).ok());
  const Fence fence = Raise("job", 2).value();
  const std::string before = base::ReadFile(directory_ + "/FENCE").value();
  ASSERT_TRUE(RestoreFence(directory_, fence).ok()) << "it is there";
  std::filesystem::remove(directory_ + "/FENCE");
  ASSERT_TRUE(RestoreFence(directory_, fence).ok());
  EXPECT_EQ(base::ReadFile(directory_ + "/FENCE").value(), before);
  EXPECT_TRUE(CheckFence(directory_, fence).ok());
  // An older copy of the folder is back, with the fence of an earlier epoch.
  Fence old = fence;
  old.epoch = 1;
  old.token = "0123";
  std::ofstream(directory_ + "/FENCE") << ToJson(old);
  ExpectGone(CheckFence(directory_, fence), "of epoch 1 again");
  ASSERT_TRUE(RestoreFence(directory_, fence).ok());
  EXPECT_EQ(base::ReadFile(directory_ + "/FENCE").value(), before);
}

TEST_F(FenceTest, TheRunIsNamedByItsHolderAndKeptByTheNext) {
  Fence first = Raise("job", 1).value();
  EXPECT_EQ(first.run, "");
  int writes = 0;
  const auto write = [&] {
    ++writes;
    const base::Fd lock(::open((directory_ + "/FENCE.lock").c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) << "another may be raised";
    return OkStatus();
  };
  const auto full = [] { return Status(absl::ResourceExhaustedError("disk full")); };
  EXPECT_TRUE(absl::IsResourceExhausted(NameRun(directory_, "run-1", full, &first)));
  EXPECT_EQ(ReadFence(directory_)->value().run, "") << "what is named was written before";
  ASSERT_TRUE(NameRun(directory_, "run-1", write, &first).ok());
  EXPECT_EQ(writes, 1);
  EXPECT_EQ(first.run, "run-1");
  EXPECT_EQ(ReadFence(directory_)->value().run, "run-1");
  EXPECT_TRUE(CheckFence(directory_, first).ok()) << "it holds the directory as before";
  // Until the next holder has named its own.
  const Fence second = Raise("job", 2).value();
  EXPECT_EQ(second.run, "run-1");
  const std::string text = base::ReadFile(directory_ + "/FENCE").value();
  ExpectRefused(NameRun(directory_, "run-2", write, &first), {"fenced", "job job"});
  EXPECT_EQ(base::ReadFile(directory_ + "/FENCE").value(), text);
  // A fence that is gone is not made anew by the way.
  std::filesystem::remove(directory_ + "/FENCE");
  Fence gone = second;
  ExpectGone(NameRun(directory_, "run-2", write, &gone), "FENCE is gone");
  EXPECT_EQ(gone.run, "run-1");
  EXPECT_EQ(writes, 1) << "nothing is written in a directory of another";
  EXPECT_FALSE(base::Exists(directory_ + "/FENCE"));
}

TEST_F(FenceTest, NoFenceIsRestoredOverAnothers) {
  const Fence mine = Raise("job", 2).value();
  std::filesystem::remove(directory_ + "/FENCE");
  ASSERT_TRUE(Raise("other", 1).ok());
  const Fence other = Raise("other", 2).value();
  const std::string text = base::ReadFile(directory_ + "/FENCE").value();
  ExpectRefused(RestoreFence(directory_, mine), {"fenced", "job other"});
  EXPECT_EQ(FenceEpochOf(RestoreFence(directory_, mine)), 0) << "another job's epoch tells nothing";
  EXPECT_EQ(base::ReadFile(directory_ + "/FENCE").value(), text);
  // Its fence is gone too, but what it has saved is there.
  ASSERT_TRUE(Save(10, other).ok());
  std::filesystem::remove(directory_ + "/FENCE");
  EXPECT_EQ(RestoreFence(directory_, mine).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(base::Exists(directory_ + "/FENCE"));
}

TEST_F(FenceTest, AHigherEpochOfTheSameJobIsTold) {
  const Fence first = Raise("job", 5).value();
  EXPECT_EQ(FenceEpochOf(OkStatus()), 0);
  EXPECT_EQ(FenceEpochOf(Raise("job", 5).status()), 0) << "no higher one";
  const int64_t later = (int64_t{3} << 20) | 7;
  ASSERT_TRUE(Raise("job", later).ok());
  EXPECT_EQ(FenceEpochOf(Raise("job", 6).status()), later);
  EXPECT_EQ(FenceEpochOf(CheckFence(directory_, first)), later);
  EXPECT_EQ(FenceEpochOf(RestoreFence(directory_, first)), later);
  EXPECT_EQ(FenceEpochOf(Save(10, first)), later) << "on rank 0";
  EXPECT_EQ(FenceEpochOf(Raise("other", 1).status()), 0);
}

// A save that fails after its rename leaves its folder; the same step can be saved all the same.
TEST_F(FenceTest, AStepWhoseSaveFailedAfterTheRenameIsSavedAgain) {
  const Fence fence = Raise("job", 1).value();
  const auto fail_at = [](std::string_view wanted) {
    return [wanted](std::string_view point) {
      return point == wanted ? base::Internal("I/O error") : OkStatus();
    };
  };
  EXPECT_FALSE(Save(10, fence, fail_at("renamed")).ok());
  ASSERT_TRUE(OnDisk({10, 1}));
  EXPECT_FALSE(Save(10, fence, fail_at("shard")).ok());
  EXPECT_FALSE(OnDisk({10, 1})) << "said to have failed, so nobody counts on it";
  ASSERT_TRUE(Save(10, fence).ok());
  EXPECT_EQ(List(), (std::vector<CheckpointId>{{10, 1}}));
}

TEST_F(FenceTest, KilledAtAnyPointOfATakeover) {
  for (const std::string point : {"locked", "checked", "raised", "found"}) {
    const TempDir dir;
    const std::string directory = dir.File("ckpt");
    std::filesystem::create_directories(directory);
    const RaiseArgs first{.directory = directory, .job_uid = "job", .epoch = 1};
    const Fence old = RaiseFence(first).value();
    std::filesystem::create_directories(directory + "/step-00000010-e0001");
    std::ofstream(directory + "/step-00000010-e0001/manifest.json") << "{}";
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      RaiseArgs args{.directory = directory, .job_uid = "job", .epoch = 2};
      args.failpoint = [&](std::string_view at) {
        if (at == point) ::_exit(9);
        return OkStatus();
      };
      static_cast<void>(RaiseFence(args));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 9) << point;
    const bool raised = point == "raised" || point == "found";
    EXPECT_EQ(CheckFence(directory, old).ok(), !raised) << point;
    EXPECT_EQ(FindNewest(directory)->value(), (CheckpointId{10, 1})) << point;
    // The next placement is not held up, and finds what there was.
    const auto next = RaiseFence({.directory = directory, .job_uid = "job", .epoch = 3});
    ASSERT_TRUE(next.ok()) << point << ": " << next.status();
    EXPECT_EQ(next->directory_epoch, raised ? 3 : 2) << point;
    EXPECT_EQ(next->bases.at(next->directory_epoch), (CheckpointId{10, 1})) << point;
  }
}

TEST_F(FenceTest, OfContendersOneHoldsTheDirectory) {
  constexpr int kContenders = 8;
  for (const bool same_epoch : {true, false}) {
    const TempDir dir;
    std::vector<StatusOr<Fence>> results(kContenders, Fence{});
    std::vector<std::thread> threads;
    for (int i = 0; i < kContenders; ++i) {
      threads.emplace_back([&, i] {
        results[static_cast<size_t>(i)] = RaiseFence(
            {.directory = dir.path(), .job_uid = "job", .epoch = same_epoch ? 1 : i + 1});
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::set<int64_t> directory_epochs;
    int raised = 0, held = 0;
    for (const auto& result : results) {
      if (!result.ok()) {
        ExpectRefused(result.status(), {"is not above"});
        continue;
      }
      ++raised;
      directory_epochs.insert(result->directory_epoch);
      held += CheckFence(dir.path(), *result).ok() ? 1 : 0;
    }
    EXPECT_EQ(held, 1);
    EXPECT_EQ(static_cast<int>(directory_epochs.size()), raised) << "no epoch was given twice";
    if (same_epoch) {
      EXPECT_EQ(raised, 1);
    }
    EXPECT_EQ(ReadFence(dir.path()).value()->epoch, same_epoch ? 1 : kContenders);
  }
}

TEST_F(FenceTest, WhatCountsFollowsFromTheBases) {
  Fence fence;
  fence.directory_epoch = 9;
  fence.bases = {{2, std::nullopt}, {4, CheckpointId{50, 2}}, {9, CheckpointId{80, 4}}};
  const std::pair<CheckpointId, bool>
      cases[] =
          {
              {{10, 1}, false},  // epoch 2 began with nothing
              {{50, 2}, true},  {{40, 2}, true},  {{51, 2}, false},
              {{10, 3}, false},  // an epoch that never looked, and none of whose folders was found
              {{80, 4}, true},  {{81, 4}, false}, {{5, 8}, false},
              {{1, 9}, true},   {{1, 10}, true}};
  for (const auto& [id, counts] : cases) {
    EXPECT_EQ(Counts(fence, id), counts) << FolderName(id);
  }
  EXPECT_TRUE(Counts(std::nullopt, {1, 1}));
}

}  // namespace
}  // namespace mt::checkpoint
