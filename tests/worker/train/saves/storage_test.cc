// Storage that fails under a run: saves that fail at each of their points, a folder or a fence that
// is gone, shards that are missing. Nothing that was trained is given up for it, and a fault of the
// storage is said to be one.
#include <atomic>
#include <filesystem>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/rpc/reason.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/root_marker.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::train {
namespace {

const Command kReleaseNow = {CommandKind::kRelease, "release"};
const Command kReleaseAgain = {CommandKind::kRelease, "again"};
const Command kResumeNow = {CommandKind::kResume, "resume"};

class StorageTest : public TrainTest {
 protected:
  StorageTest() { layout_ = {"parallel.data=2"}; }

  std::string Folder() const { return dir_.path() + "/checkpoints/tiny"; }
  std::string Aside() const { return dir_.path() + "/aside"; }

  // Rank 0 calls `act` after each step, before anything is saved.
  static void AfterStep(int rank, TrainArgs* args, std::function<void(int64_t step)> act) {
    if (rank != 0) return;
    args->after_step = [act = std::move(act)](int64_t step, const params::ParamStore&) {
      act(step);
    };
  }
  // A failpoint that fails the first save that comes to this point; copies share their state.
  static std::function<Status(std::string_view)> FailOnce(std::string point, Status status) {
    return [point = std::move(point), status = std::move(status),
            failed = std::make_shared<bool>(false)](std::string_view at) {
      return at != point || std::exchange(*failed, true) ? OkStatus() : status;
    };
  }
  static std::vector<int64_t> FailedSteps(const RankOutcome& rank0) {
    std::vector<int64_t> steps;
    for (const auto& [step, why] : rank0.seen.failed_saves) steps.push_back(step);
    return steps;
  }
  // The folder is there again, and the directory's fence is readable: what a later run finds.
  std::vector<StepRecord> GoOn() {
    adjust_ = nullptr;
    const auto outcomes = Run({});
    ExpectClean(outcomes, 20);
    return outcomes[0].seen.steps;
  }
};

TEST_F(StorageTest, APeriodicSaveThatFailedIsTriedAgainBeforeItsNextTurn) {
  base::ManualClock clock;
  clock_ = &clock;
  int failures = 0;
  adjust_ = [&](int rank, TrainArgs* args) {
    AfterStep(rank, args, [&](int64_t) { clock.Advance(std::chrono::seconds(10)); });
    if (rank != 0) return;
    args->checkpoint_failpoint = [&](std::string_view point) {
      if (point != "begin" || failures == 2) return OkStatus();
      ++failures;
      return Status(absl::ResourceExhaustedError("disk full"));
    };
  };
  const auto outcomes = Run({"checkpoint.every_iters=18", "training.train_iters=60"});
  ExpectClean(outcomes, 60);
  // After 18; with the bit that step 22 carries, 30 s later; with that of step 30, 60 s later.
  EXPECT_EQ(FailedSteps(outcomes[0]), (std::vector<int64_t>{18, 23}));
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{31, 36, 54}));
}

TEST_F(StorageTest, ARequestedSaveThatFailedIsTheUsersToRepeat) {
  base::ManualClock clock;
  clock_ = &clock;
  adjust_ = [&](int rank, TrainArgs* args) {
    AfterStep(rank, args, [&](int64_t) { clock.Advance(std::chrono::seconds(10)); });
    if (rank == 0) args->checkpoint_failpoint = FailOnce("begin", base::Internal("disk full"));
  };
  const auto outcomes = Run({}, {{3, {CommandKind::kCheckpointNow, "save"}}});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(StepsOnDisk(), std::vector<int64_t>{});
}

// --- A release whose save fails.

using ReleaseTest = StorageTest;

// "Ranks held, nothing lost", 20 of 20: at each point of a save and on each rank; then the release
// is tried again, or the run goes on.
TEST_F(ReleaseTest, AFailedSaveHoldsEveryRankAndLosesNothing) {
  const auto calm = Run({"checkpoint.directory=none"});
  const std::vector<std::string> points = {"begin",    "folder",  "shard",  "gathered",
                                           "manifest", "checked", "renamed"};
  int trials = 0;
  for (const bool again : {true, false}) {
    for (const std::string& point : points) {
      for (const int culprit : {0, 1}) {
        // Rank 0 alone commits.
        if (culprit == 1 && (point == "manifest" || point == "checked" || point == "renamed"))
          continue;
        SCOPED_TRACE(point + ", rank " + std::to_string(culprit) + (again ? ", again" : ""));
        ++trials;
        std::filesystem::remove_all(Folder());
        adjust_ = [&](int rank, TrainArgs* args) {
          if (rank != culprit) return;
          args->checkpoint_failpoint =
              FailOnce(point, base::Error(absl::StatusCode::kResourceExhausted, "no space left"));
        };
        const int64_t carrier = 3 + trials % 5;
        auto outcomes =
            Run({}, {{carrier, kReleaseNow}, {carrier + 4, again ? kReleaseAgain : kResumeNow}});
        const auto& done = outcomes[0].seen.commands_done;
        ASSERT_EQ(done.size(), 2U);
        EXPECT_TRUE(done[0].held);
        EXPECT_EQ(done[0].carrier_step, carrier);
        EXPECT_EQ(done[0].step, carrier + 1);
        EXPECT_NE(base::Message(done[0].error).find("no space left"), std::string::npos);
        for (const RankOutcome& rank : outcomes) {
          EXPECT_TRUE(std::ranges::find(rank.seen.states, TrainState::kHeld) !=
                      rank.seen.states.end());
        }
        ExpectClean(outcomes, again ? carrier + 1 : 20);
        std::vector<StepRecord> steps = outcomes[0].seen.steps;
        if (again) {
          EXPECT_FALSE(done[1].held);
          ASSERT_TRUE(done[1].checkpoint.has_value()) << done[1].error;
          EXPECT_EQ(done[1].checkpoint->step, carrier + 1);
          EXPECT_EQ(StepsOnDisk(), std::vector<int64_t>{carrier + 1});
          const std::vector<StepRecord> rest = GoOn();
          steps.insert(steps.end(), rest.begin(), rest.end());
        }
        ExpectEqualCurve(steps, calm[0].seen.steps);
      }
    }
  }
  EXPECT_GE(trials, 20);
}

TEST_F(ReleaseTest, ARunAtItsEndIsHeldToo) {
  for (const int64_t last : {12, 20}) {
    SCOPED_TRACE(last);
    std::vector<std::string> overrides;
    if (last == 12) overrides.emplace_back("training.exit_at_iter=12");
    for (const bool fails : {true, false}) {
      std::filesystem::remove_all(Folder());
      adjust_ = [&](int, TrainArgs* args) {
        if (fails) args->checkpoint_failpoint = FailOnce("shard", base::Internal("I/O error"));
      };
      const auto outcomes = Run(overrides, {{last, kReleaseNow}, {last + 3, kReleaseAgain}});
      ExpectClean(outcomes, last);
      EXPECT_EQ(outcomes[0].seen.commands_done[0].held, fails);
      EXPECT_EQ(StepsOnDisk(), std::vector<int64_t>{last});
      EXPECT_FALSE(outcomes[0].result.final_save_failed);
    }
  }
}

TEST_F(ReleaseTest, StrictEndsTheRunAllTheSame) {
  adjust_ = [](int, TrainArgs* args) {
    args->checkpoint_failpoint = [](std::string_view at) {
      return at == "shard" ? base::Internal("I/O error") : OkStatus();
    };
  };
  const auto outcomes = Run({"checkpoint.strict=true"}, {{4, kReleaseNow}});
  for (const RankOutcome& rank : outcomes) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kStorage);
    EXPECT_EQ(rpc::ReasonOf(rank.result.status), "SAVE_FAILED");
  }
  EXPECT_FALSE(outcomes[0].seen.commands_done.at(0).held);
}

// --- A folder or a fence that is gone.

TEST_F(StorageTest, AFolderThatIsAwayFailsSavesUntilItIsBack) {
  adjust_ = [this](int rank, TrainArgs* args) {
    args->job_uid = "job";
    args->epoch = 1;
    AfterStep(rank, args, [this](int64_t step) {
      if (step == 6) std::filesystem::rename(Folder(), Aside());
      if (step == 14) std::filesystem::rename(Aside(), Folder());
    });
  };
  const auto outcomes =
      Run({"checkpoint.every_iters=4"}, {{9, {CommandKind::kCheckpointNow, "now"}}});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(FailedSteps(outcomes[0]), (std::vector<int64_t>{8, 10, 12}));
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{4, 16, 20}));
  ASSERT_EQ(outcomes[0].seen.commands_done.size(), 1U);
  EXPECT_NE(base::Message(outcomes[0].seen.commands_done[0].error).find("FENCE is gone"),
            std::string::npos);
  EXPECT_FALSE(outcomes[0].result.final_save_failed);
}

TEST_F(StorageTest, UnderStrictAFolderThatIsAwayIsAFaultOfTheStorage) {
  adjust_ = [this](int rank, TrainArgs* args) {
    AfterStep(rank, args, [this](int64_t step) {
      if (step == 6) std::filesystem::rename(Folder(), Aside());
    });
  };
  for (const RankOutcome& rank : Run({"checkpoint.every_iters=4", "checkpoint.strict=true"})) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kStorage) << rank.result.status;
    EXPECT_EQ(rpc::ReasonOf(rank.result.status), "SAVE_FAILED");
    EXPECT_EQ(rank.result.last_step, 8);
  }
}

// What the run is told of its root and its epoch, what happens to the directory after step 6, and
// whether saves go on from step 8.
class FenceRepairTest : public StorageTest {
 protected:
  void SetUp() override {
    StorageTest::SetUp();
    std::filesystem::create_directories(dir_.path() + "/checkpoints");
    id_ = checkpoint::EnsureRootMarker(dir_.path() + "/checkpoints", "n1").value().id;
    open_ = [] { return true; };
    happens_ = [this] { std::filesystem::remove(Folder() + "/FENCE"); };
  }

  std::vector<RankOutcome> RunWithoutFence() {
    std::filesystem::remove_all(Folder());
    asked_ = 0;
    adjust_ = [this](int rank, TrainArgs* args) {
      args->job_uid = "job";
      args->epoch = 4;
      args->checkpoint_root_id = id_;
      if (open_) {
        args->epoch_open = [this, rank]() -> StatusOr<bool> {
          EXPECT_EQ(rank, 0) << "one rank asks";
          ++asked_;
          return open_();
        };
      }
      AfterStep(rank, args, [this](int64_t step) {
        if (step == 6) happens_();
      });
    };
    return Run({"checkpoint.every_iters=4"});
  }
  void ExpectRaisedAgain() {
    const auto outcomes = RunWithoutFence();
    ExpectClean(outcomes, 20);
    EXPECT_TRUE(outcomes[0].seen.failed_saves.empty());
    EXPECT_EQ(StepsOnDisk().back(), 20);
    EXPECT_EQ(asked_, 1) << "the fence is there from then on";
    EXPECT_EQ(checkpoint::ReadFence(Folder()).value()->epoch, 4);
  }
  // Every save from step 8 on fails with these words, and training goes on.
  void ExpectNotRaised(const std::string& words) {
    const auto outcomes = RunWithoutFence();
    ExpectClean(outcomes, 20);
    EXPECT_EQ(FailedSteps(outcomes[0]), (std::vector<int64_t>{8, 12, 16, 20}));
    for (const auto& [step, why] : outcomes[0].seen.failed_saves)
      EXPECT_NE(base::Message(why).find(words), std::string::npos) << why;
    EXPECT_FALSE(base::Exists(Folder() + "/FENCE"));
    EXPECT_TRUE(outcomes[0].result.final_save_failed);
  }

  std::string id_;
  std::function<StatusOr<bool>()> open_;
  std::function<void()> happens_;
  std::atomic<int> asked_ = 0;
};

TEST_F(FenceRepairTest, AFenceThatIsGoneIsRaisedAgain) { ExpectRaisedAgain(); }

TEST_F(FenceRepairTest, AnEmptyFolderInItsPlaceWillDo) {
  happens_ = [this] {
    std::filesystem::remove_all(Folder());
    std::filesystem::create_directory(Folder());
  };
  ExpectRaisedAgain();
  EXPECT_EQ(OnDisk(), (std::vector<checkpoint::CheckpointId>{{12, 1}, {16, 1}, {20, 1}}))
      << "three are kept";
  const auto runs = checkpoint::ReadRuns(Folder());
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->runs.size(), 1U);
  EXPECT_EQ(runs->runs[0].id, checkpoint::ReadManifest(Folder(), {20, 1})->run);
  EXPECT_EQ(runs->runs[0].id, checkpoint::ReadFence(Folder()).value()->run);
}

TEST_F(FenceRepairTest, AnOlderFenceOfTheJobIsNoTakeover) {
  happens_ = [this] {
    checkpoint::Fence old = checkpoint::ReadFence(Folder()).value().value();
    old.epoch = 2;
    old.token = "77";
    EXPECT_TRUE(base::WriteFileAtomic(Folder() + "/FENCE", ToJson(old)).ok());
  };
  ExpectRaisedAgain();
}

TEST_F(FenceRepairTest, NotWithoutTheFolder) {
  happens_ = [this] { std::filesystem::remove_all(Folder()); };
  ExpectNotRaised("make an empty one");
  EXPECT_FALSE(base::Exists(Folder()));
  EXPECT_EQ(asked_, 0);
}

TEST_F(FenceRepairTest, NotWhereTheRootIsUnknownOrAnother) {
  const std::string right = id_;
  id_ = "";
  ExpectNotRaised("had no marker when the job was placed");
  id_ = "another";
  ExpectNotRaised("is another root");
  id_ = right;
  happens_ = [this] {
    std::filesystem::remove(Folder() + "/FENCE");
    std::filesystem::remove(dir_.path() + "/checkpoints/.megatrain-root");
  };
  ExpectNotRaised("is its file system mounted?");
  EXPECT_EQ(asked_, 0) << "nobody is asked for what is refused anyway";
}

TEST_F(FenceRepairTest, NotUnlessTheCoordinatorSaysNowThatTheEpochIsOpen) {
  open_ = [] { return false; };
  ExpectNotRaised("this epoch is closed");
  EXPECT_EQ(asked_, 4) << "each save asks anew";
  open_ = [] { return base::Error(absl::StatusCode::kDeadlineExceeded, "no answer in time"); };
  ExpectNotRaised("no answer in time");
  open_ = nullptr;
  ExpectNotRaised("no coordinator can say");
}

TEST_F(FenceRepairTest, AnothersFenceEndsTheRun) {
  for (const auto& [uid, epoch, told] :
       {std::tuple<std::string, int64_t, int64_t>{"job", 9, 9}, {"other", 9, 0}}) {
    SCOPED_TRACE(uid);
    happens_ = [this, uid = uid, epoch = epoch] {
      std::filesystem::remove(Folder() + "/FENCE");
      EXPECT_TRUE(
          checkpoint::RaiseFence({.directory = Folder(), .job_uid = uid, .epoch = epoch}).ok());
    };
    const auto outcomes = RunWithoutFence();
    for (const RankOutcome& rank : outcomes) {
      EXPECT_EQ(rank.result.status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(rank.result.last_step, 8);
    }
    EXPECT_EQ(checkpoint::FenceEpochOf(outcomes[0].result.status), told);
    EXPECT_EQ(asked_, 0);
  }
}

TEST_F(FenceRepairTest, ARefusedStartTellsTheHigherEpoch) {
  ASSERT_TRUE(base::MakeDirs(Folder()).ok());
  ASSERT_TRUE(checkpoint::RaiseFence({.directory = Folder(), .job_uid = "job", .epoch = 9}).ok());
  adjust_ = [](int, TrainArgs* args) {
    args->job_uid = "job";
    args->epoch = 4;
  };
  const auto outcomes = Run({});
  EXPECT_FALSE(outcomes[0].created);
  EXPECT_EQ(checkpoint::FenceEpochOf(outcomes[0].result.status), 9);
}

// --- Loading.

TEST_F(StorageTest, AMissingShardIsAFaultOfTheStorage) {
  for (const std::string name : {"rank-00001.safetensors", "rank-00000.safetensors"}) {
    std::filesystem::remove_all(Folder());
    ExpectClean(Run({"checkpoint.every_iters=10", "training.exit_at_iter=10"}), 10);
    ASSERT_TRUE(std::filesystem::remove(Folder() + "/step-00000010-e0001/" + name));
    int blamed = 0;
    for (const RankOutcome& rank : Run({})) {
      EXPECT_FALSE(rank.created);
      const failure::Cause cause = failure::CauseOf(rank.result.status);
      EXPECT_NE(cause, failure::Cause::kUserError) << rank.result.status;
      if (cause != failure::Cause::kStorage) continue;
      ++blamed;
      EXPECT_EQ(rpc::ReasonOf(rank.result.status), "") << "a load, no save";
      EXPECT_NE(base::Message(rank.result.status).find(name), std::string::npos)
          << rank.result.status;
    }
    EXPECT_GE(blamed, 1);
  }
}

}  // namespace
}  // namespace mt::train
