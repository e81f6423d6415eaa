// Saves that go on beside training: what is saved is the state of one step to the bit, whatever
// trains on; saves that are due or requested meanwhile, failures, and every way to end.
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/mutex.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::train {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kBeside[] = "checkpoint.async_save=true";

// Counts how often something has happened; a thread may wait for that.
class Counter {
 public:
  void Add() {
    base::MutexLock lock(&mu_);
    ++count_;
    changed_.NotifyAll();
  }
  int count() {
    base::MutexLock lock(&mu_);
    return count_;
  }
  // Gives up after a minute.
  void Await(int count) {
    const auto limit = std::chrono::steady_clock::now() + seconds(60);
    base::MutexLock lock(&mu_);
    while (count_ < count && changed_.WaitUntil(&mu_, limit)) {
    }
    EXPECT_GE(count_, count);
  }

 private:
  base::Mutex mu_;
  base::CondVar changed_;
  int count_ GUARDED_BY(mu_) = 0;
};

class BackgroundSaveTest : public TrainTest {
 protected:
  using AtStep = std::function<void(int64_t step)>;
  using AtPoint = std::function<Status(int rank, std::string_view point)>;

  // Calls `at_step` after each step of rank 0 and `at_point` at each point of a save. over_ counts
  // the saves that have ended on rank 0.
  void Watch(AtStep at_step, AtPoint at_point) {
    adjust_ = [this, at_step = std::move(at_step), at_point = std::move(at_point)](
                  int rank, TrainArgs* args) {
      args->checkpoint_failpoint = [this, rank, at_point](std::string_view point) {
        if (point == "over" && rank == 0) over_.Add();
        return at_point ? at_point(rank, point) : OkStatus();
      };
      if (rank != 0 || !at_step) return;
      args->after_step = [at_step](int64_t step, const params::ParamStore&) { at_step(step); };
    };
  }
  // Saves wait before they write until rank 0 has ended the step before this one: they are written
  // beside this step. The first of them ends behind it, before the next one begins.
  void HoldSavesUntil(int64_t step) {
    Watch(
        [this, step](int64_t now) {
          if (now == step - 1 || now == step) gate_.Add();
          if (now == step) over_.Await(1);
        },
        [this](int, std::string_view point) {
          if (point == "begin") gate_.Await(1);
          if (point == "renamed") gate_.Await(2);
          return OkStatus();
        });
  }
  std::string Folder(int64_t step, int64_t epoch, const std::string& directory = "tiny") const {
    return dir_.path() + "/checkpoints/" + directory + "/" + checkpoint::FolderName({step, epoch});
  }
  static std::string Read(const std::string& path) {
    const StatusOr<std::string> text = base::ReadFile(path);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.ok() ? *text : "";
  }
  // The manifest without what says when and by which job it was written.
  static json ManifestOf(const std::string& folder) {
    json manifest = json::parse(Read(folder + "/manifest.json"));
    manifest.erase("created");
    manifest.erase("run");  // each is one of its own
    manifest.at("job").erase("spec");
    return manifest;
  }
  static std::vector<int64_t> StepsOf(const std::vector<CheckpointRecord>& records) {
    std::vector<int64_t> steps;
    for (const CheckpointRecord& record : records) steps.push_back(record.step);
    return steps;
  }

  Counter gate_, over_;
};

// One of the ranks has memory for all but the copy: all save without it, the same bytes.
TEST_F(BackgroundSaveTest, WhereMemoryIsShortSavesHoldUpTraining) {
  const std::vector<std::string> job = {"parallel.data=2", "checkpoint.every_iters=5",
                                        "checkpoint.keep_last=9"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), job.begin(), job.end());
    return more;
  };
  const auto plain = Run(with({}));
  ExpectClean(plain, 20);
  const int64_t needed = memory::Total(MemoryOf(plain[0].seen.steps.back()));
  for (const bool is_short : {true, false}) {
    adjust_ = [&](int rank, TrainArgs* args) {
      if (rank == 1) args->memory_limit_bytes = is_short ? needed + 1024 : 100 * needed;
    };
    const std::string directory = is_short ? "short" : "roomy";
    const auto ranks = Run(with({kBeside, "checkpoint.directory=" + directory}));
    ExpectClean(ranks, 20);
    const bool copied = memory::Total(MemoryOf(ranks[0].seen.steps.back())) > needed;
    EXPECT_EQ(copied, !is_short) << "on the rank that has room, too";
    if (is_short) {
      EXPECT_EQ(ranks[0].seen.saves.size(), plain[0].seen.saves.size());
    }
    for (const CheckpointRecord& save : ranks[0].seen.saves) {
      if (is_short) {
        EXPECT_GE(save.stall_seconds, save.seconds);
      }
      const std::string mine = Folder(save.step, 1, directory);
      const std::string theirs = Folder(save.step, 1);
      for (const char* shard : {"/rank-00000.safetensors", "/rank-00001.safetensors"})
        EXPECT_EQ(Read(mine + shard), Read(theirs + shard)) << save.step;
      EXPECT_EQ(ManifestOf(mine), ManifestOf(theirs));
    }
  }
}

// Each of two ranks would have room, but they share the memory of one machine.
TEST_F(BackgroundSaveTest, RanksOfAMachineNeedRoomTogether) {
  const auto run = [this](int64_t limit, const std::string& directory) {
    adjust_ = [limit](int, TrainArgs* args) { args->memory_limit_bytes = limit; };
    const auto ranks = Run({"parallel.data=2", kBeside, "checkpoint.directory=" + directory});
    ExpectClean(ranks, 20);
    return memory::Total(MemoryOf(ranks[0].seen.steps.back()));
  };
  constexpr int64_t kAmple = int64_t{1} << 32;
  const int64_t with_copy = run(kAmple, "ample");
  EXPECT_EQ(run(2 * with_copy + 65536, "both"), with_copy);
  EXPECT_LT(run(2 * with_copy - 65536, "one"), with_copy) << "one alone would have room";
}

// Uses so much of a processor on this thread.
void Burn(milliseconds time) {
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto until = used() + time;
  while (used() < until) {
  }
}

// On CPU slots the writing thread rests 40 times as long as it has worked, unless it is awaited.
TEST_F(BackgroundSaveTest, RestsAfterItsWork) {
  Watch(
      [this](int64_t step) {
        if (step == 11) over_.Await(1);
      },
      [](int, std::string_view point) {
        if (point == "begin") Burn(milliseconds(25));
        return OkStatus();
      });
  const auto ranks = Run({kBeside, "checkpoint.every_iters=10"});
  ExpectClean(ranks, 20);
  ASSERT_FALSE(ranks[0].seen.saves.empty());
  EXPECT_GE(ranks[0].seen.saves.front().seconds, 0.9);
}

// What the copy has cost is no work of the writing thread that it rests for.
TEST_F(BackgroundSaveTest, NothingRestsForTheCopy) {
  Watch(
      [this](int64_t step) {
        if (step == 11) over_.Await(1);
      },
      [](int, std::string_view point) {
        if (point == "copy") Burn(milliseconds(400));
        return OkStatus();
      });
  const auto ranks = Run({kBeside, "checkpoint.every_iters=10"});
  ExpectClean(ranks, 20);
  ASSERT_FALSE(ranks[0].seen.saves.empty());
  EXPECT_LT(ranks[0].seen.saves.front().seconds, 8) << "it would have rested for 16 s";
}

// In fp32 the weights are the masters, and are gathered beside the copy.
class BackgroundSaveBitsTest : public BackgroundSaveTest,
                               public ::testing::WithParamInterface<const char*> {};

TEST_P(BackgroundSaveBitsTest, TheStateOfOneStepIsSavedWhateverTrainsOn) {
  layout_ = CubeLayout();
  const std::vector<std::string> job = {std::string("training.precision=") + GetParam(),
                                        "checkpoint.every_iters=5", "checkpoint.keep_last=9"};
  const auto with = [&job](const std::string& more, const std::string& directory) {
    std::vector<std::string> overrides = job;
    overrides.push_back(more);
    overrides.push_back("checkpoint.directory=" + directory);
    return overrides;
  };
  const auto blocking = Run(with("checkpoint.async_save=false", "a"));
  ExpectClean(blocking, 20);
  // The copy begins late: the next update must wait for it.
  Watch(
      [this](int64_t step) {
        if (step % 5 == 2) over_.Await(static_cast<int>(step / 5));
      },
      [](int, std::string_view point) {
        if (point == "copy") std::this_thread::sleep_for(milliseconds(30));
        return OkStatus();
      });
  const auto beside = Run(with(kBeside, "b"));
  ExpectClean(beside, 20);
  ExpectEqualCurve(beside[0].seen.steps, blocking[0].seen.steps);
  ASSERT_EQ(StepsOf(beside[0].seen.saves), (std::vector<int64_t>{5, 10, 15, 20}));
  for (const int64_t step : {5, 10, 15, 20}) {
    const std::string a = Folder(step, 1, "a"), b = Folder(step, 1, "b");
    EXPECT_EQ(ManifestOf(a), ManifestOf(b));
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(a)) {
      const std::string name = entry.path().filename().string();
      if (name == "manifest.json") continue;
      ++files;
      EXPECT_EQ(Read(a + "/" + name) == Read(b + "/" + name), true) << name;
    }
    EXPECT_GT(files, 1);
  }
}
INSTANTIATE_TEST_SUITE_P(Precisions, BackgroundSaveBitsTest, ::testing::Values("bf16", "fp32"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(BackgroundSaveTest, TrainingGoesOnWhileASaveIsWritten) {
  layout_ = {"parallel.data=2"};
  HoldSavesUntil(9);
  const auto ranks = Run({kBeside, "checkpoint.every_iters=4", "checkpoint.keep_last=9"});
  ExpectClean(ranks, 20);
  const std::vector<CheckpointRecord>& saves = ranks[0].seen.saves;
  ASSERT_GE(saves.size(), 2U);
  EXPECT_EQ(saves.front().step, 4);
  EXPECT_EQ(saves.front().consumed_samples, 32);
  EXPECT_EQ(saves.front().skipped, 1) << "that after step 8";
  EXPECT_EQ(saves[1].step, 12) << "which is due when the first one has ended";
  EXPECT_EQ(saves.back().step, 20) << "the last one is of the end";
  int64_t due = 0;
  for (const CheckpointRecord& record : saves) due += 1 + record.skipped;
  EXPECT_EQ(due, 5) << "after 4, 8, 12, 16 and at the end";
  EXPECT_EQ(StepsOnDisk(), StepsOf(saves));
}

TEST_F(BackgroundSaveTest, ARequestedSaveWaitsForTheOneUnderWay) {
  HoldSavesUntil(13);
  const auto ranks =
      Run({kBeside, "checkpoint.keep_last=9"}, {{2, {CommandKind::kCheckpointNow, "first"}},
                                                {6, {CommandKind::kCheckpointNow, "second"}},
                                                {7, {CommandKind::kCheckpointNow, "third"}}});
  ExpectClean(ranks, 20);
  const std::vector<CommandResult>& done = ranks[0].seen.commands_done;
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[0].id, "first");
  EXPECT_EQ(done[0].step, 3);
  EXPECT_EQ(done[1].id, "second");
  EXPECT_EQ(done[2].id, "third");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(done[i].error.ok()) << done[i].error;
    ASSERT_TRUE(done[i].checkpoint.has_value());
    EXPECT_TRUE(base::Exists(done[i].checkpoint->path));
  }
  EXPECT_EQ(done[1].step, 15) << "of the state when it could begin";
  EXPECT_EQ(done[1].step, done[2].step) << "one save answers both";
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{3, 15}));
}

TEST_F(BackgroundSaveTest, AFailureStopsNoTrainingUnlessItIsStrict) {
  layout_ = {"parallel.data=2"};
  for (const bool strict : {false, true}) {
    std::atomic<int> shards = 0;
    const int before = over_.count();
    Watch(
        [this, before](int64_t step) {
          if (step % 6 == 1) over_.Await(before + static_cast<int>(step / 6));
        },
        [&shards](int rank, std::string_view point) {
          if (rank != 1 || point != "shard" || shards++ > 0) return OkStatus();
          return Status(absl::ResourceExhaustedError("no space left on device"));
        });
    const std::string directory = strict ? "strict" : "lenient";
    const auto ranks = Run({kBeside, "checkpoint.every_iters=6", "checkpoint.keep_last=9",
                            "checkpoint.directory=" + directory,
                            std::string("checkpoint.strict=") + (strict ? "true" : "false")});
    ASSERT_EQ(ranks[0].seen.failed_saves.size(), 1U);
    EXPECT_EQ(ranks[0].seen.failed_saves[0].first, 6);
    EXPECT_NE(base::Message(ranks[0].seen.failed_saves[0].second).find("rank 1: no space left"),
              std::string::npos);
    EXPECT_FALSE(base::Exists(Folder(6, 1, directory) + ".tmp"));
    for (const RankOutcome& rank : ranks) {
      EXPECT_EQ(rank.result.completed, !strict);
      if (!strict) continue;
      EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kStorage);
      EXPECT_LT(rank.result.last_step, 12);
    }
    EXPECT_EQ(StepsOf(ranks[0].seen.saves),
              strict ? std::vector<int64_t>{} : (std::vector<int64_t>{12, 18}));
  }
}

// Holds, asks for a save, and resumes when that is over.
class SaveWhileHeld final : public CommandSource {
 public:
  explicit SaveWhileHeld(Counter* over) : over_(over) {}
  std::optional<Command> Poll() override {
    ++polls_;
    if (polls_ == 3) return Command{.kind = CommandKind::kHold, .id = "hold"};
    if (polls_ == 6) return Command{.kind = CommandKind::kCheckpointNow, .id = "save"};
    if (resumed_at_ == 0 && over_->count() > 0) resumed_at_ = polls_ + 10;
    if (polls_ == resumed_at_) return Command{.kind = CommandKind::kResume, .id = "resume"};
    return std::nullopt;
  }

 private:
  Counter* const over_;
  int64_t polls_ = 0;
  int64_t resumed_at_ = 0;
};

TEST_F(BackgroundSaveTest, HeldRanksSaveToo) {
  Watch(nullptr, nullptr);
  SaveWhileHeld commands(&over_);
  const auto ranks = RunJob(
      TinyJob({kBeside}),
      {.root = dir_.path(), .commands = &commands, .adjust = [this](int rank, TrainArgs* args) {
         adjust_(rank, args);
         args->idle_interval = milliseconds(0);
       }});
  ExpectClean(ranks, 20);
  const std::vector<CommandResult>& done = ranks[0].seen.commands_done;
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[1].id, "save") << "reported before the resume";
  EXPECT_EQ(done[1].step, 4);
  ASSERT_TRUE(done[1].checkpoint.has_value());
  EXPECT_EQ(done[1].checkpoint->step, 4);
}

TEST_F(BackgroundSaveTest, EveryEndWaitsForTheSaveUnderWay) {
  const std::pair<CommandKind, std::vector<int64_t>> ends[] = {{CommandKind::kStopWithSave, {4, 6}},
                                                               {CommandKind::kStopWithoutSave, {4}},
                                                               {CommandKind::kRelease, {4, 6}}};
  int n = 0;
  for (const auto& [kind, steps] : ends) {
    // The save of step 4 goes on until the last step is done.
    ++n;
    Watch(
        [this](int64_t step) {
          if (step == 6) gate_.Add();
        },
        [this, n](int, std::string_view point) {
          if (point == "shard") gate_.Await(n);
          return OkStatus();
        });
    const std::string directory = "end" + std::to_string(n);
    const auto ranks = Run({kBeside, "checkpoint.every_iters=4", "checkpoint.keep_last=9",
                            "checkpoint.directory=" + directory},
                           {{5, {kind, "end"}}});
    ExpectClean(ranks, 6);
    EXPECT_EQ(StepsOf(ranks[0].seen.saves), steps) << directory;
    std::vector<int64_t> found;
    for (const checkpoint::CheckpointId& id : OnDisk(directory)) found.push_back(id.step);
    EXPECT_EQ(found, steps);
  }
}

TEST_F(BackgroundSaveTest, WhatWasSavedGoesOnToTheBit) {
  layout_ = {"parallel.data=2", "parallel.zero_stage=1"};
  const auto straight = Run({"checkpoint.directory=none"})[0].seen;
  HoldSavesUntil(10);
  // The run ends without another save, so that the next one goes on from what was saved beside it.
  const auto first =
      Run({kBeside, "checkpoint.every_iters=6"}, {{10, {CommandKind::kStopWithoutSave, "stop"}}});
  ExpectClean(first, 11);
  EXPECT_EQ(StepsOnDisk(), std::vector<int64_t>{6});
  adjust_ = nullptr;
  const auto second = Run({kBeside})[0].seen;
  EXPECT_EQ(second.infos[0].resumed_from_step, 6);
  ExpectEqualCurve(second.steps, {straight.steps.begin() + 6, straight.steps.end()});
}

TEST_F(BackgroundSaveTest, ARankThatIsLostEndsTheSavesOfAll) {
  layout_ = {"parallel.data=2"};
  Watch(
      [](int64_t step) {
        if (step == 6) throw std::runtime_error("the device is gone");
      },
      [](int rank, std::string_view point) {
        if (rank == 1 && point == "shard") std::this_thread::sleep_for(milliseconds(200));
        return OkStatus();
      });
  const auto ranks = Run({kBeside, "checkpoint.every_iters=4"});
  EXPECT_NE(base::Message(ranks[0].result.status).find("the device is gone"), std::string::npos);
  EXPECT_EQ(ranks[1].result.status.code(), absl::StatusCode::kUnavailable)
      << ranks[1].result.status;
}

// Threads, open files and resident bytes of this process.
struct Taken {
  int threads = 0;
  int files = 0;
  int64_t resident = 0;
};

Taken TakenNow() {
  Taken taken;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++taken.threads;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++taken.files;
  const StatusOr<std::string> text = base::ReadFile("/proc/self/statm");
  if (text.ok()) taken.resident = std::stoll(text->substr(text->find(' '))) * 4096;
  return taken;
}

// A fifth of them under sanitizers.
TEST_F(BackgroundSaveTest, AThousandSavesLeakNothing) {
  const int64_t steps = kSanitized ? 400 : 2000;
  Taken early, late;
  adjust_ = [&](int, TrainArgs* args) {
    args->after_step = [&](int64_t step, const params::ParamStore&) {
      if (step == steps / 10) early = TakenNow();
      if (step == steps - 10) late = TakenNow();
    };
  };
  const auto ranks =
      Run({kBeside, "training.train_iters=" + std::to_string(steps), "checkpoint.every_iters=2",
           "checkpoint.keep_last=2", "training.precision=fp32"});
  ExpectClean(ranks, steps);
  int64_t due = 0;
  for (const CheckpointRecord& record : ranks[0].seen.saves) due += 1 + record.skipped;
  EXPECT_EQ(due, steps / 2);
  EXPECT_LE(late.threads, early.threads + 1) << "one may be saving";
  EXPECT_LE(late.files, early.files + 4);
  // A sanitizer keeps freed memory aside, and finds leaks by itself.
  if (!kSanitized) {
    EXPECT_LE(late.resident, early.resident + (int64_t{24} << 20));
  }
  EXPECT_EQ(OnDisk().size(), 2U);
}

}  // namespace
}  // namespace mt::train
