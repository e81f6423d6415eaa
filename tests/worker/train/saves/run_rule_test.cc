// The rule of going on through whole runs: a job submitted again goes on with its own run, at that
// run's newest intact checkpoint, whatever else lies in the directory; another begins on purpose.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointId;
using Ids = std::vector<CheckpointId>;

class RunRuleTest : public TrainTest {
 protected:
  // Trains to this step, saving every two; what rank 0 was told.
  Observed TrainTo(int64_t step, std::vector<std::string> overrides = {}) {
    overrides.push_back("training.exit_at_iter=" + std::to_string(step));
    overrides.emplace_back("checkpoint.every_iters=2");
    overrides.emplace_back("checkpoint.keep_last=20");
    const std::vector<RankOutcome> outcomes = Run(overrides);
    ExpectClean(outcomes, step);
    return outcomes[0].seen;
  }
  Status Refused(const std::vector<std::string>& overrides = {}) {
    const RankOutcome outcome = Run(overrides)[0];
    EXPECT_FALSE(outcome.created);
    return outcome.result.status;
  }
  std::string File(const CheckpointId& id, const std::string& name) const {
    return dir_.path() + "/checkpoints/tiny/" + checkpoint::FolderName(id) + "/" + name;
  }
  void FlipBit(const CheckpointId& id) const {
    std::string bytes = base::ReadFile(File(id, "rank-00000.safetensors")).value();
    bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
    ASSERT_TRUE(base::WriteFileAtomic(File(id, "rank-00000.safetensors"), bytes).ok());
  }
  void Restart(const std::string& token) {
    adjust_ = [token](int, TrainArgs* args) { args->restart = token; };
  }
  static int64_t From(const Observed& seen) { return seen.infos.at(0).resumed_from_step; }
  static const std::string& RunOf(const Observed& seen) { return seen.infos.at(0).run.id; }
};

// A second stage with another run's weights ends early and is submitted again.
TEST_F(RunRuleTest, ASecondStageGoesOnWithWhatItHasTrained) {
  TrainTo(6, {"checkpoint.directory=first"});
  const std::vector<std::string> stage = {"checkpoint.load=first", "checkpoint.load_kind=weights"};
  const Observed begun = TrainTo(4, stage);
  EXPECT_TRUE(begun.infos[0].run_begins);
  EXPECT_EQ(From(begun), 0);
  const Observed again = TrainTo(8, stage);
  EXPECT_FALSE(again.infos[0].run_begins);
  EXPECT_EQ(RunOf(again), RunOf(begun));
  EXPECT_EQ(From(again), 4);
  EXPECT_EQ(again.steps.front().step(), 5);
  EXPECT_EQ(again.steps.front().consumed_samples(), 40) << "its whole state, not its weights alone";
  EXPECT_EQ(OnDisk(), (Ids{{2, 1}, {4, 1}, {6, 2}, {8, 2}}));
  // The parent of what it saves is its own.
  const auto manifest = checkpoint::ReadManifest(dir_.path() + "/checkpoints/tiny", {6, 2});
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->parent_step, 4);
  EXPECT_EQ(manifest->run, RunOf(begun));
}

// A branch of a run that still trains.
TEST_F(RunRuleTest, ABranchThatHasSavedNothingBeginsAgainFromTheSameCheckpoint) {
  TrainTo(6, {"checkpoint.directory=trunk"});
  const std::vector<std::string> branch = {"checkpoint.load=trunk"};
  const Observed begun =
      Run({"checkpoint.load=trunk"}, {{1, {CommandKind::kStopWithoutSave, ""}}})[0].seen;
  EXPECT_EQ(From(begun), 6);
  TrainTo(10, {"checkpoint.directory=trunk"});
  const Observed again = TrainTo(12, branch);
  EXPECT_EQ(RunOf(again), RunOf(begun));
  EXPECT_EQ(From(again), 6) << "not the trunk's newest, which is another one by now";
  EXPECT_EQ(From(TrainTo(14, branch)), 12);
  EXPECT_EQ(checkpoint::ReadRuns(dir_.path() + "/checkpoints/tiny")->runs.size(), 1U);
}

TEST_F(RunRuleTest, AFreshRunIsGoneOnWithAndNotTheHigherStep) {
  const std::string first = RunOf(TrainTo(12));
  const std::vector<std::string> fresh = {"checkpoint.fresh=true"};
  const Observed begun = TrainTo(4, fresh);
  EXPECT_EQ(begun.steps.front().step(), 1);
  EXPECT_NE(RunOf(begun), first);
  const Observed again = TrainTo(6, fresh);
  EXPECT_EQ(RunOf(again), RunOf(begun));
  EXPECT_EQ(From(again), 4);
  const Observed named_none = TrainTo(8);
  EXPECT_EQ(RunOf(named_none), RunOf(begun));
  EXPECT_EQ(From(named_none), 6);
  const Ids on_disk = OnDisk();
  EXPECT_EQ(std::count_if(on_disk.begin(), on_disk.end(),
                          [](const CheckpointId& id) { return id.epoch == 1; }),
            6)
      << "what the first run has kept";
}

TEST_F(RunRuleTest, AnotherRunBeginsOnPurposeAndOnce) {
  const std::string first = RunOf(TrainTo(6));
  Restart("token");
  const Observed begun = TrainTo(4);
  EXPECT_TRUE(begun.infos[0].run_begins);
  EXPECT_EQ(From(begun), 0);
  EXPECT_NE(RunOf(begun), first);
  const Observed placed_again = TrainTo(8);
  EXPECT_EQ(RunOf(placed_again), RunOf(begun));
  EXPECT_EQ(From(placed_again), 4);
  // One that names a beginning resolves that anew.
  Restart("another");
  const Observed load = TrainTo(8, {"checkpoint.load=6"});
  EXPECT_EQ(From(load), 6);
  EXPECT_TRUE(load.infos[0].run_begins);
  EXPECT_EQ(OnDisk().size(), 3U + 4U + 1U) << "nothing is deleted";
}

// What the coordinator knows of the job is of an earlier run until the new one has begun.
TEST_F(RunRuleTest, ARestartExpectsNothingAndIsBoundOnceItHasBegun) {
  const std::string first = RunOf(TrainTo(6));
  checkpoint::ResumeBase base{.job_uid = "", .step = 6};
  base.run = first;
  const auto place = [&] {
    adjust_ = [base](int, TrainArgs* args) {
      args->restart = "token";
      args->base = base;
    };
  };
  place();
  const Observed begun = TrainTo(4);
  EXPECT_EQ(From(begun), 0);
  base.run = RunOf(begun);
  base.step = 4;
  place();
  EXPECT_EQ(From(TrainTo(8)), 4);
  base.step = 10;
  place();
  EXPECT_NE(base::Message(Refused()).find("of step 10 is expected"), std::string::npos);
}

// The base of a job that names a beginning is its run's, whichever run is the newest.
TEST_F(RunRuleTest, TheBaseFollowsTheRun) {
  const std::string first = RunOf(TrainTo(6));
  TrainTo(8, {"checkpoint.fresh=true"});
  checkpoint::ResumeBase base{.job_uid = "another job", .step = 6};
  base.run = first;
  adjust_ = [&](int, TrainArgs* args) { args->base = base; };
  layout_ = {"parallel.data=2"};
  const Observed on = TrainTo(10, {"checkpoint.load=2"});
  EXPECT_EQ(From(on), 6);
  EXPECT_EQ(RunOf(on), first);
}

// The newest is damaged, in whatever way, and the same job is submitted again.
TEST_F(RunRuleTest, ADamagedNewestIsPassedOverForTheOneBefore) {
  TrainTo(8);
  TrainTo(4, {"checkpoint.fresh=true"});
  const std::string run = RunOf(TrainTo(10));
  const auto passes = [&](const char* what, int64_t step, const char* said) {
    const Observed seen = Run({}, {{1, {CommandKind::kStopWithoutSave, ""}}})[0].seen;
    ASSERT_EQ(seen.infos.size(), 1U) << what;
    EXPECT_EQ(From(seen), step) << what;
    EXPECT_EQ(RunOf(seen), run) << what;
    ASSERT_FALSE(seen.infos[0].damaged_checkpoints.empty()) << what;
    EXPECT_NE(seen.infos[0].damaged_checkpoints.back().find(said), std::string::npos)
        << seen.infos[0].damaged_checkpoints.back();
  };
  FlipBit({10, 3});
  passes("a digest, at loading", 8, "step-00000010-e0003");
  fs::remove(File({8, 3}, "rank-00000.safetensors"));
  passes("a missing file", 6, "step-00000008-e0003");
  std::ofstream(File({6, 3}, "manifest.json")) << "{";
  passes("a manifest", 4, "step-00000006-e0003");
  fs::resize_file(File({4, 2}, "rank-00000.safetensors"), 100);
  passes("a short file", 2, "step-00000004-e0002");
  // Nothing of the run is left; that of the other one is not taken.
  FlipBit({2, 2});
  const Ids before = OnDisk();
  const Status status = Refused();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(failure::CauseOf(status), failure::Cause::kStorage);
  for (const std::string& part : {run, std::string("step-00000002-e0002"), std::string("is intact"),
                                  std::string("--restart")})
    EXPECT_NE(base::Message(status).find(part), std::string::npos) << part << " in " << status;
  EXPECT_EQ(OnDisk(), before);
  Restart("token");
  EXPECT_EQ(From(TrainTo(2)), 0);
}

TEST_F(RunRuleTest, ADamagedCheckpointThatIsNamedIsAnError) {
  TrainTo(6);
  FlipBit({6, 1});
  for (const char* load : {"6", "tiny/step-00000006-e0001"}) {
    const Status status =
        Refused({"checkpoint.directory=branch", "checkpoint.load=tiny/step-00000006-e0001"});
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << load;
    EXPECT_EQ(Refused({std::string("checkpoint.load=") + load}).code(), absl::StatusCode::kDataLoss)
        << load;
  }
}

TEST_F(RunRuleTest, WhatMayNotChangeNamesTheWayToBeginAnother) {
  TrainTo(4);
  for (const char* change : {"model.layers=3", "training.seed=7", "training.train_iters=50"}) {
    const std::string why(base::Message(Refused({change})));
    EXPECT_NE(why.find("--restart"), std::string::npos) << change << ": " << why;
  }
}

}  // namespace
}  // namespace mt::train
