// checkpoint.load_kind: hf. A run that begins with the folder to which a checkpoint was exported
// has the steps of one that begins with the weights of the checkpoint itself, whatever the layout.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/hf/export.h"

namespace mt::train {
namespace {

class HfStartTest : public TrainTest {
 protected:
  // Trains ten steps, and exports what they have learned to checkpoints/hf.
  void ExportTrained() {
    ExpectClean(Run({"checkpoint.directory=old"}, {{9, {CommandKind::kStopWithSave, ""}}}), 10);
    const std::string root = dir_.path() + "/checkpoints/";
    const auto id = OnDisk("old").back();
    const auto place = checkpoint::FindCheckpoint(root + "old/" + checkpoint::FolderName(id));
    ASSERT_TRUE(place.ok()) << place.status();
    const auto exported = hf::Export({.from = *place, .to = root + "hf"});
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ(exported->dtype, "float64");
  }

  // Three steps of a run that begins so.
  std::vector<RankOutcome> Begin(const std::string& load, const std::string& kind,
                                 std::vector<std::string> more) {
    more.insert(more.end(), {"checkpoint.load=" + load, "checkpoint.load_kind=" + kind,
                             "training.train_iters=3", "training.seed=99"});
    return Run(more);
  }
};

TEST_F(HfStartTest, BeginsWithTheWeightsInAnyLayout) {
  ASSERT_NO_FATAL_FAILURE(ExportTrained());
  const auto native = Begin("old", "weights", {"checkpoint.directory=none"});
  ExpectClean(native, 3);
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"parallel.tensor=2"},
      {"parallel.pipeline=2"},
      {"parallel.data=2", "parallel.zero_stage=1"}};
  for (const std::vector<std::string>& layout : layouts) {
    std::vector<std::string> overrides = {"checkpoint.directory=none"};
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    const auto run = Begin("hf", "hf", overrides);
    ExpectClean(run, 3);
    EXPECT_EQ(run[0].seen.infos[0].resumed_from_step, 0);
    ExpectSameCurve(run[0].seen.steps, native[0].seen.steps, 1e-12, 1e-12);
  }
}

// It goes on with its own checkpoints then.
TEST_F(HfStartTest, GoesOnWithWhatItHasSaved) {
  ASSERT_NO_FATAL_FAILURE(ExportTrained());
  const std::vector<std::string> job = {"checkpoint.directory=new", "checkpoint.load=hf",
                                        "checkpoint.load_kind=hf"};
  ExpectClean(Run(job, {{4, {CommandKind::kStopWithSave, ""}}}), 5);
  const auto again = Run(job, {{3, {CommandKind::kStopWithSave, ""}}});
  EXPECT_EQ(again[0].seen.infos[0].resumed_from_step, 5);
}

TEST_F(HfStartTest, AnotherModelIsRefusedByField) {
  ASSERT_NO_FATAL_FAILURE(ExportTrained());
  const RankOutcome other =
      Begin("hf", "hf", {"model.layers=4", "model.norm_eps=1e-6", "checkpoint.directory=none"})[0];
  EXPECT_FALSE(other.created);
  const std::string why = base::Message(other.result.status);
  EXPECT_NE(why.find("model.layers: config.json has 2, the job 4"), std::string::npos) << why;
  EXPECT_NE(why.find("model.norm_eps: config.json has 1e-05, the job 1e-06"), std::string::npos)
      << why;
  const RankOutcome missing = Begin("nowhere", "hf", {"checkpoint.directory=none"})[0];
  EXPECT_FALSE(missing.created);
  EXPECT_NE(base::Message(missing.result.status).find("config.json"), std::string::npos);
}

}  // namespace
}  // namespace mt::train
