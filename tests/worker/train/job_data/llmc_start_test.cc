// checkpoint.load_kind: llmc. A run that begins with the model file to which a checkpoint was
// exported has the steps of one that begins with the same weights of a Hugging Face folder,
// whatever the layout.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/hf/export.h"
#include "worker/llmc/export.h"

namespace mt::train {
namespace {

class LlmcStartTest : public TrainTest {
 protected:
  // Trains ten steps, and exports what they have learned, rounded to fp32, to checkpoints/model.bin
  // and checkpoints/hf.
  void ExportTrained() {
    ExpectClean(Run({"checkpoint.directory=old"}, {{9, {CommandKind::kStopWithSave, ""}}}), 10);
    const std::string root = dir_.path() + "/checkpoints/";
    const auto id = OnDisk("old").back();
    const auto place = checkpoint::FindCheckpoint(root + "old/" + checkpoint::FolderName(id));
    ASSERT_TRUE(place.ok()) << place.status();
    const auto exported = llmc::Export({.from = *place, .to = root + "model.bin"});
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ(exported->header.version, llmc::Version::kF32) << "of a job that trains in fp64";
    ASSERT_TRUE(hf::Export({.from = *place, .to = root + "hf", .dtype = "float32"}).ok());
  }

  // Three steps of a run that begins so.
  std::vector<RankOutcome> Begin(const std::string& load, const std::string& kind,
                                 std::vector<std::string> more) {
    more.insert(more.end(),
                {"checkpoint.load=" + load, "checkpoint.load_kind=" + kind,
                 "checkpoint.directory=none", "training.train_iters=3", "training.seed=99"});
    return Run(more);
  }
};

TEST_F(LlmcStartTest, BeginsWithTheWeightsInAnyLayout) {
  ASSERT_NO_FATAL_FAILURE(ExportTrained());
  const auto same = Begin("hf", "hf", {});
  ExpectClean(same, 3);
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"parallel.tensor=2", "parallel.pipeline=2"},
      {"parallel.data=2", "parallel.zero_stage=1"}};
  for (const std::vector<std::string>& layout : layouts) {
    const auto run = Begin("model.bin", "llmc", layout);
    ExpectClean(run, 3);
    EXPECT_EQ(run[0].seen.infos[0].resumed_from_step, 0);
    ExpectSameCurve(run[0].seen.steps, same[0].seen.steps, 1e-12, 1e-12);
  }
}

// It goes on with its own checkpoints then.
TEST_F(LlmcStartTest, GoesOnWithWhatItHasSaved) {
  ASSERT_NO_FATAL_FAILURE(ExportTrained());
  const std::vector<std::string> job = {"checkpoint.directory=new", "checkpoint.load=model.bin",
                                        "checkpoint.load_kind=llmc"};
  ExpectClean(Run(job, {{4, {CommandKind::kStopWithSave, ""}}}), 5);
  const auto again = Run(job, {{3, {CommandKind::kStopWithSave, ""}}});
  EXPECT_EQ(again[0].seen.infos[0].resumed_from_step, 5);
}

TEST_F(LlmcStartTest, AnotherModelIsRefusedByField) {
  ASSERT_NO_FATAL_FAILURE(ExportTrained());
  const auto refused = [this](const std::string& load, const std::vector<std::string>& model,
                              const std::vector<std::string>& texts) {
    const RankOutcome other = Begin(load, "llmc", model)[0];
    EXPECT_FALSE(other.created);
    const std::string why = base::Message(other.result.status);
    for (const std::string& text : texts)
      EXPECT_NE(why.find(text), std::string::npos) << text << " in " << why;
  };
  refused("model.bin", {"model.layers=4", "model.norm_eps=1e-6", "model.position=rope"},
          {"model.layers: the header of llm.c has 2, the job 4",
           "model.norm_eps: the header of llm.c has 1e-05, the job 1e-06",
           "model.position: the header of llm.c has learned, the job rope", "--job-file"});
  refused("nowhere.bin", {}, {"nowhere.bin"});
  refused("hf", {}, {"is a folder"});
  refused("hf/model.safetensors", {}, {"no model file of llm.c"});
}

}  // namespace
}  // namespace mt::train
