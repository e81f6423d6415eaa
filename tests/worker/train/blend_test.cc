// Runs over a blend of data sets: stopped and resumed they read what the uninterrupted run reads,
// checkpoints say how much of each data set that was, and another blend is refused.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/manifest.h"

namespace mt::train {
namespace {

using testing::HasSubstr;

// 16 samples of training behind 20 steps of 8.
constexpr int64_t kBatch = 8;

class BlendRunTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    const std::string data = base::JoinPath(dir_.path(), "data");
    for (const char* name : {"news", "books", "code"})
      WriteTokens(base::JoinPath(data, name), 60 + 40 * static_cast<int>(name[0] % 3));
    // Two replicas, so that each reads a part of every step.
    layout_ = {"parallel.data=2",
               "data.path=[0.5, news, 0.3, books, 0.2, code]",
               "checkpoint.directory=parts",
               "checkpoint.at_end=true",
               "training.eval.every_iters=5",
               "training.eval.iters=2"};
  }
  std::string FactOf(int64_t step, const std::string& name) const {
    for (const checkpoint::CheckpointId& id : OnDisk("parts")) {
      if (id.step != step) continue;
      const auto text = base::ReadFile(base::JoinPath(
          dir_.path(), "checkpoints/parts/" + checkpoint::FolderName(id) + "/manifest.json"));
      const auto manifest = checkpoint::ParseManifest(text.value());
      const auto found = manifest->facts.find(name);
      return found == manifest->facts.end() ? "none" : found->second;
    }
    return "no checkpoint";
  }
};

TEST_F(BlendRunTest, StoppedTwiceItReadsWhatTheUninterruptedRunReads) {
  const auto whole = Run({"checkpoint.directory=whole"});
  ExpectClean(whole, 20);
  std::vector<StepRecord> steps;
  for (const char* until : {"training.exit_at_iter=7", "training.exit_at_iter=12", ""}) {
    const auto part =
        Run(*until == '\0' ? std::vector<std::string>() : std::vector<std::string>{until});
    ASSERT_TRUE(part[0].result.status.ok()) << part[0].result.status;
    steps.insert(steps.end(), part[0].seen.steps.begin(), part[0].seen.steps.end());
  }
  ExpectEqualCurve(steps, whole[0].seen.steps);
  // Shares of 0.5, 0.3 and 0.2: never off by a sample.
  EXPECT_EQ(FactOf(7, "data.train.consumed"), "28,17,11") << 7 * kBatch;
  EXPECT_EQ(FactOf(20, "data.train.consumed"), "80,48,32");
  EXPECT_EQ(FactOf(20, "data.train.weights"), "0.5,0.3,0.2");
  EXPECT_THAT(FactOf(20, "data.train.2.source"), HasSubstr("data/code"));
}

TEST_F(BlendRunTest, AnotherBlendIsRefusedByName) {
  ASSERT_TRUE(Run({"training.exit_at_iter=3"})[0].result.status.ok());
  const auto other = Run({"data.path=[0.5, news, 0.2, books, 0.3, code]"});
  EXPECT_THAT(base::Message(other[0].result.status),
              HasSubstr("weights: checkpoint '0.5,0.3,0.2', this run '0.5,0.2,0.3'"));
  const auto weights =
      Run({"data.path=[0.5, news, 0.2, books, 0.3, code]", "checkpoint.directory=other",
           "checkpoint.load=parts", "checkpoint.load_kind=weights", "training.exit_at_iter=1"});
  EXPECT_TRUE(weights[0].result.status.ok()) << weights[0].result.status;
}

// On purpose it is taken, and known to the next checkpoint: later starts need no consent.
TEST_F(BlendRunTest, AnotherBlendIsGoneOnWithOnPurpose) {
  ASSERT_TRUE(Run({"training.exit_at_iter=3"})[0].result.status.ok());
  const std::string other = "data.path=[0.5, news, 0.2, books, 0.3, code]";
  const auto taken = Run({other, "data.allow_new_blend=true", "training.exit_at_iter=6"});
  ASSERT_TRUE(taken[0].result.status.ok()) << taken[0].result.status;
  EXPECT_EQ(taken[0].seen.steps.size(), 3U) << "from the checkpoint's step on";
  EXPECT_EQ(FactOf(6, "data.train.weights"), "0.5,0.2,0.3");
  const auto on = Run({other});
  EXPECT_TRUE(on[0].result.status.ok()) << on[0].result.status;
  EXPECT_EQ(on[0].seen.steps.size(), 14U);
  EXPECT_EQ(FactOf(20, "data.train.consumed"), "80,32,48");
}

TEST_F(BlendRunTest, AFileListsTheDataSets) {
  const auto listed = Run({"training.exit_at_iter=4"});
  const std::string list = base::JoinPath(dir_.path(), "data/mix.txt");
  ASSERT_TRUE(base::WriteFileAtomic(list, "0.5 news\n0.3 books\n0.2 code\n").ok());
  const auto from_file =
      Run({"data.path={file: mix.txt}", "checkpoint.directory=file", "training.exit_at_iter=4"});
  ASSERT_TRUE(from_file[0].result.status.ok()) << from_file[0].result.status;
  ExpectEqualCurve(from_file[0].seen.steps, listed[0].seen.steps);
  ASSERT_TRUE(base::WriteFileAtomic(list, "1 /etc/passwd").ok());
  const auto outside = Run({"data.path={file: mix.txt}", "checkpoint.directory=outside"});
  EXPECT_THAT(base::Message(outside[0].result.status), HasSubstr("mix.txt"));
}

// The curve is another one where labels behind end-of-document have no loss, and its tokens are
// fewer.
TEST_F(BlendRunTest, LabelsBehindEndOfDocumentCanBeLeftOut) {
  const auto all = Run({"checkpoint.directory=none", "training.train_iters=2"});
  const auto masked =
      Run({"checkpoint.directory=none", "training.train_iters=2", "data.eod_mask_loss=true"});
  ASSERT_TRUE(masked[0].result.status.ok()) << masked[0].result.status;
  EXPECT_NE(masked[0].seen.steps[0].loss(), all[0].seen.steps[0].loss());
}

}  // namespace
}  // namespace mt::train
