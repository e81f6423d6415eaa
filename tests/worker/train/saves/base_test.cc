// Runs that must find a checkpoint: refused before anything is written where it is not there, and
// past a damaged one, which no rank but the one that reads it can see.
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/rpc/reason.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/root_marker.h"
#include "worker/checkpoint/writer.h"
#include "worker/train/resume.h"

namespace mt::train {
namespace {

class BaseTest : public TrainTest {
 protected:
  // Two stages: each rank reads its own shard alone (a tied table would be in both).
  BaseTest() {
    layout_ = {"parallel.pipeline=2", "model.tie_embeddings=false"};
    std::filesystem::create_directory(Root());
    root_id_ = checkpoint::EnsureRootMarker(Root(), "node")->id;
  }
  std::string Root() const { return dir_.path() + "/checkpoints"; }
  std::string Folder(int64_t step) const {
    return Root() + "/tiny/" + checkpoint::FolderName({step, 1});
  }
  void Damage(int64_t step, int rank) const {
    const std::string file = Folder(step) + "/rank-0000" + std::to_string(rank) + ".safetensors";
    std::string bytes = base::ReadFile(file).value();
    bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
    ASSERT_TRUE(base::WriteFileAtomic(file, bytes).ok());
  }
  // The job as placement `epoch`, under an agent.
  std::vector<RankOutcome> Place(int64_t epoch, std::optional<checkpoint::ResumeBase> base,
                                 const std::vector<std::string>& overrides = {}) {
    adjust_ = [=](int, TrainArgs* args) {
      args->job_uid = "job";
      args->epoch = epoch;
      args->base = base;
      args->make_checkpoint_root = false;
    };
    return Run(overrides);
  }
  // Checkpoints of the steps 5, 10, 15 and 20.
  void TrainOnce() {
    ExpectClean(Place(1, std::nullopt, {"checkpoint.every_iters=5", "checkpoint.keep_last=9"}), 20);
  }
  static checkpoint::ResumeBase Base(int64_t step) { return {.job_uid = "job", .step = step}; }
  // Every file below the root.
  std::set<std::string> Files() const {
    std::set<std::string> files;
    if (!base::Exists(Root())) return files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Root()))
      files.insert(entry.path());
    return files;
  }
  // Refused on all ranks, for the reason that the coordinator knows, and nothing is touched.
  void ExpectMissing(const std::vector<RankOutcome>& outcomes, const std::string& part) const {
    for (size_t rank = 0; rank < outcomes.size(); ++rank) {
      const Status& status = outcomes[rank].result.status;
      EXPECT_FALSE(outcomes[rank].created);
      EXPECT_NE(base::Message(status).find(part), std::string::npos) << status;
      EXPECT_EQ(rpc::ReasonOf(status),
                rank == 0 ? rpc::reason::kExpectedCheckpointMissing : std::string_view());
      EXPECT_EQ(failure::CauseOf(status),
                rank == 0 ? failure::Cause::kStorage : failure::Cause::kNetwork);
    }
  }
  int64_t FenceEpoch() const { return checkpoint::ReadFence(Root() + "/tiny")->value().epoch; }

  std::string root_id_;
};

TEST_F(BaseTest, BelowTheBaseNothingIsWritten) {
  TrainOnce();
  const auto before = Files();
  ExpectMissing(Place(2, Base(21)), "of step 20");
  EXPECT_EQ(Files(), before);
  EXPECT_EQ(FenceEpoch(), 1) << "no fence is raised in a directory that is not the job's";
  std::filesystem::remove_all(Root() + "/tiny");
  ExpectMissing(Place(2, Base(20)), "that folder is missing");
  EXPECT_EQ(Files(), std::set<std::string>{Root() + "/.megatrain-root"});
  std::filesystem::remove_all(Root());
  ExpectMissing(Place(2, Base(20)), "is missing");
  EXPECT_FALSE(base::Exists(Root()));
}

TEST_F(BaseTest, TheBaseIsFoundAndItsRootIsNamedInLaterSaves) {
  TrainOnce();
  std::filesystem::remove_all(Folder(20));
  const auto outcomes = Place(2, Base(15), {"checkpoint.every_iters=5"});
  ExpectClean(outcomes, 20);
  EXPECT_EQ(outcomes[0].seen.infos[0].resumed_from_step, 15);
  EXPECT_TRUE(outcomes[0].seen.infos[0].damaged_checkpoints.empty());
  EXPECT_EQ(outcomes[0].seen.saves.back().root_id, root_id_);
  EXPECT_EQ(FenceEpoch(), 2);
}

TEST_F(BaseTest, DamageThatOneRankSeesIsPassedOverByAll) {
  TrainOnce();
  Damage(20, 1);
  Damage(15, 0);
  const auto outcomes = Place(2, Base(20));
  ExpectClean(outcomes, 20);
  EXPECT_EQ(outcomes[0].seen.steps.front().step(), 11);
  const RunInfo& info = outcomes[0].seen.infos[0];
  EXPECT_EQ(info.resumed_from_step, 10);
  ASSERT_EQ(info.damaged_checkpoints.size(), 2U);
  EXPECT_NE(info.damaged_checkpoints[0].find("step-00000020-e0001: "), std::string::npos);
  EXPECT_NE(info.damaged_checkpoints[0].find("rank-00001.safetensors"), std::string::npos);
  EXPECT_NE(info.damaged_checkpoints[1].find("step-00000015-e0001: "), std::string::npos);
}

// The same losses as a run that went on from the older checkpoint by itself: nothing of the damaged
// one is left in the state.
TEST_F(BaseTest, WhatADamagedCheckpointHadLoadedIsForgotten) {
  TrainOnce();
  const std::string copy = dir_.path() + "/copy";
  std::filesystem::copy(Root(), copy, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(Folder(20));
  std::filesystem::remove_all(Folder(15));
  const auto expected = Place(2, Base(10));
  std::filesystem::remove_all(Root());
  std::filesystem::rename(copy, Root());
  Damage(20, 1);
  Damage(15, 1);
  const auto outcomes = Place(2, Base(20));
  ASSERT_EQ(outcomes[0].seen.steps.size(), expected[0].seen.steps.size());
  for (size_t i = 0; i < expected[0].seen.steps.size(); ++i)
    EXPECT_EQ(outcomes[0].seen.steps[i].loss(), expected[0].seen.steps[i].loss()) << i;
}

// What counts is what lies there once nobody else can change it: an earlier placement may save
// until the fence is raised.
TEST_F(BaseTest, TheChoiceIsMadeUnderTheFence) {
  TrainOnce();
  const megatrain::v1::JobSpec job = TinyJob({"checkpoint.directory=tiny"});
  const checkpoint::ResumeBase base = Base(15);
  checkpoint::Exchange alone(nullptr, nullptr);
  StartArgs args{.job = &job,
                 .checkpoint_root = Root(),
                 .job_uid = "job",
                 .epoch = 2,
                 .ended_job_uids = {},
                 .base = &base};
  args.fence_failpoint = [this](std::string_view point) {
    if (point != "checked") return OkStatus();
    checkpoint::SaveArgs save;
    save.directory = Root() + "/tiny";
    save.manifest.step = 25;
    save.manifest.epoch = 1;
    save.manifest.job_uid = "job";
    save.manifest.spec_json = "{}";
    const double value = 1;
    save.slices = {{.key = "weights/w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {1},
                    .offset = {0},
                    .shape = {1},
                    .data = &value}};
    return checkpoint::SaveCheckpoint(save).status();
  };
  const auto start = FindStart(args, &alone);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->load, (checkpoint::CheckpointId{25, 1}));
  // And what was removed meanwhile is missed, though the fence is raised by then.
  args.epoch = 3;
  args.fence_failpoint = [this](std::string_view point) {
    if (point == "checked") std::filesystem::remove_all(Root() + "/tiny/step-00000025-e0001");
    return OkStatus();
  };
  const checkpoint::ResumeBase newest = Base(25);
  args.base = &newest;
  EXPECT_EQ(rpc::ReasonOf(FindStart(args, &alone).status()),
            rpc::reason::kExpectedCheckpointMissing);
}

TEST_F(BaseTest, WhereAllAreDamagedNothingStartsCold) {
  TrainOnce();
  for (const int64_t step : {5, 10, 15, 20}) Damage(step, 1);
  ExpectMissing(Place(2, Base(20)), "step-00000005-e0001");
}

TEST_F(BaseTest, WhatTheJobSaysItselfGoesBeforeTheBase) {
  TrainOnce();
  std::filesystem::remove_all(Folder(20));
  const auto fresh = Place(2, Base(20), {"checkpoint.fresh=true"});
  ExpectClean(fresh, 20);
  EXPECT_EQ(fresh[0].seen.infos[0].resumed_from_step, 0);
  const auto load = Place(3, Base(99), {"checkpoint.load=15"});
  ExpectClean(load, 20);
  EXPECT_EQ(load[0].seen.infos[0].resumed_from_step, 15);
}

TEST_F(BaseTest, UnderAnAgentNoRankMakesTheRoot) {
  std::filesystem::remove_all(Root());
  const auto outcomes = Place(1, std::nullopt);
  const Status& status = outcomes[0].result.status;
  EXPECT_EQ(failure::CauseOf(status), failure::Cause::kStorage) << status;
  EXPECT_NE(base::Message(status).find(Root() + " is missing"), std::string::npos) << status;
  EXPECT_EQ(rpc::ReasonOf(status), "");
  EXPECT_FALSE(base::Exists(Root()));
  ExpectClean(Place(1, std::nullopt, {"checkpoint.directory=none"}), 20);
  EXPECT_FALSE(base::Exists(Root()));
}

}  // namespace
}  // namespace mt::train
