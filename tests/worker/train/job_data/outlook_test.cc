// What a start tells of its run: how much of the data it reads, and what has changed since the
// checkpoint that it goes on from.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"
#include "worker/train/job_data/data_passes.h"
#include "worker/train/load_state.h"

namespace mt::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class OutlookTest : public TrainTest {
 protected:
  // Ends after one step more; what its start was told.
  RunInfo Start(std::vector<std::string> overrides, int64_t end) {
    overrides.push_back("training.exit_at_iter=" + std::to_string(end));
    overrides.emplace_back("checkpoint.at_end=true");
    const std::vector<RankOutcome> outcomes = Run(overrides);
    ExpectClean(outcomes, end);
    return outcomes[0].seen.infos.at(0);
  }
  std::string DataRoot() const { return base::JoinPath(dir_.path(), "data"); }
};

TEST_F(OutlookTest, SaysHowOftenARunReadsItsData) {
  const std::vector<std::string> job = {"training.train_iters=400", "training.eval.every_iters=100",
                                        "training.eval.iters=4"};
  const Outlook cold = Start(job, 1).outlook;
  EXPECT_EQ(cold.tokens, 400 * 8 * 16);
  EXPECT_EQ(cold.tokens_ahead, cold.tokens);
  // 180 documents of about 40 tokens, and 20 for three evaluations of 32 samples.
  EXPECT_NEAR(cold.train_passes, 7.2, 0.3);
  EXPECT_NEAR(cold.valid_passes, 2.0, 0.3);
  const Outlook resumed = Start(job, 2).outlook;
  EXPECT_EQ(resumed.tokens, cold.tokens);
  EXPECT_EQ(resumed.tokens_ahead, 399 * 8 * 16);
  EXPECT_EQ(resumed.train_passes, cold.train_passes);
  // Without an index the same is known but for a rest of a sample.
  const DataPasses here = PassesOfJob(DataRoot(), TinyJob(job)).value();
  EXPECT_NEAR(here.train, cold.train_passes, 0.01);
  EXPECT_NEAR(here.valid, cold.valid_passes, 0.05);
}

TEST_F(OutlookTest, WholeEvaluationsAreAPassEachAndMockDataHasNone) {
  const std::vector<std::string> whole = {"training.eval.every_iters=4", "training.eval.iters=0"};
  EXPECT_EQ(Start(whole, 1).outlook.valid_passes, 4) << "the last is not one of them";
  EXPECT_EQ(PassesOfJob(DataRoot(), TinyJob(whole)).value().valid, 4);
  const Outlook none = Start({"data={mock: true, tokenizer: {type: byte}}", "name=mock",
                              "training.eval.every_iters=4"},
                             1)
                           .outlook;
  EXPECT_EQ(none.train_passes, 0);
  EXPECT_EQ(none.valid_passes, 0);
  EXPECT_EQ(none.tokens, 20 * 8 * 16);
}

TEST_F(OutlookTest, OfABlendTheDataSetThatIsReadMostOftenCounts) {
  WriteTokens(base::JoinPath(dir_.path(), "data/small"), 20);
  const std::vector<std::string> blend = {"data.path=[0.5, text, 0.5, small]",
                                          "training.train_iters=100"};
  // 1280 samples by two over 18 documents.
  const Outlook outlook = Start(blend, 1).outlook;
  EXPECT_GT(outlook.train_passes, 8);
  const DataPasses here = PassesOfJob(DataRoot(), TinyJob(blend)).value();
  EXPECT_NEAR(here.train, outlook.train_passes, 0.1);
  const auto missing = PassesOfJob(DataRoot(), TinyJob({"data.path=[none]"}));
  EXPECT_THAT(base::Message(missing.status()), HasSubstr("data/none.idx"));
}

TEST_F(OutlookTest, OneDocumentIsDividedByTokens) {
  WriteTokens(base::JoinPath(dir_.path(), "data/one"), 1);  // of 20 tokens
  std::vector<std::string> job = {"data.path=[one]", "training.eval={every_iters: 4, iters: 1}"};
  const std::string advice = "no tokens for valid: documents stay whole; data.split_by=tokens";
  EXPECT_THAT(base::Message(PassesOfJob(DataRoot(), TinyJob(job)).status()), HasSubstr(advice));
  job[1] = "training.eval={every_iters: 100, iters: 1}";
  EXPECT_THAT(base::Message(PassesOfJob(DataRoot(), TinyJob(job)).status()), HasSubstr(advice))
      << "for the evaluation after the last step";
  job[1] = "training.eval={every_iters: 4, iters: 1}";
  job.emplace_back("data.split_by=tokens");
  const DataPasses here = PassesOfJob(DataRoot(), TinyJob(job)).value();
  EXPECT_DOUBLE_EQ(here.train, 20 * 8 * 16 / 18.0);
  EXPECT_DOUBLE_EQ(here.valid, 4 * 8 * 16 / 2.0);
  const Outlook outlook = Start(job, 1).outlook;
  EXPECT_NEAR(outlook.train_passes, here.train, 1);
  EXPECT_NEAR(outlook.valid_passes, here.valid, 8);
}

TEST_F(OutlookTest, ASplitIsGoneOnWithByWhatItBegan) {
  Start({"data.split_by=tokens"}, 1);
  const std::vector<RankOutcome> by_documents = Run({});
  EXPECT_THAT(base::Message(by_documents[0].result.status),
              HasSubstr("data.split: checkpoint '90,10,0 by tokens', this run '90,10,0'"));
  EXPECT_EQ(Start({"data.split_by=tokens"}, 2).resumed_from_step, 1);
}

TEST_F(OutlookTest, WhatDiffersFromTheCheckpointIsTold) {
  EXPECT_THAT(Start({}, 2).changed, IsEmpty()) << "it begins";
  EXPECT_THAT(Start({}, 3).changed, IsEmpty()) << "where it ends is of the submission";
  EXPECT_THAT(Start({"optimizer.lr=5e-4", "labels={a: b}", "parallel.data=2"}, 4).changed,
              ElementsAre("optimizer.lr 0.001 -> 0.0005", "parallel.data 1 -> 2",
                          "placement.slots 1 -> 2"));
  EXPECT_THAT(Start({"optimizer.lr=5e-4"}, 5).changed,
              ElementsAre("parallel.data 2 -> 1", "placement.slots 2 -> 1"))
      << "the newest checkpoint has the other rate";
  EXPECT_THAT(Start({"checkpoint.fresh=true"}, 1).changed, IsEmpty());
}

TEST_F(OutlookTest, AJobOfAnEarlierVersionHasWhatItLeftOpen) {
  checkpoint::Manifest manifest;
  manifest.spec_json = R"({
    "name": "tiny", "model": {"layers": 2, "hidden_size": 16, "heads": 2, "seq_length": 16,
      "hidden_dropout": 0.1, "attention_dropout": 0.1},
    "data": {"path": ["text"], "split": "90,10,0", "tokenizer": {"type": "byte"}},
    "training": {"micro_batch_size": 2, "global_batch_size": 8, "train_iters": 20,
      "precision": "fp64"},
    "optimizer": {"lr": 0.002, "min_lr": 0.0001, "weight_decay": 0.1},
    "checkpoint": {"at_end": false}, "gone": 1,
    "placement": {"device": "cpu", "threads_per_rank": 1}})";
  EXPECT_THAT(ChangedFields(manifest, TinyJob({})), ElementsAre("optimizer.lr 0.002 -> 0.001"));
  manifest.spec_json = "no JSON";
  EXPECT_FALSE(ChangedFields(manifest, TinyJob({})).empty());
}

TEST_F(OutlookTest, ATableOfPositionsOfAnotherLengthNamesTheField) {
  const std::vector<std::string> longer = {"name=long", "model.seq_length=32"};
  Start(longer, 2);
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"checkpoint.load=long", "checkpoint.load_kind=weights"});
    const std::vector<RankOutcome> outcomes = Run(more);
    EXPECT_FALSE(outcomes[0].created);
    return base::Message(outcomes[0].result.status);
  };
  EXPECT_THAT(refused({}), HasSubstr("has 32 rows: set model.max_positions: 32"));
  EXPECT_THAT(refused({"model.seq_length=64"}),
              HasSubstr("model.seq_length 64 is more, and can be 32 at most"));
  EXPECT_EQ(
      Start({"model.max_positions=32", "checkpoint.load=long", "checkpoint.load_kind=weights"}, 1)
          .resumed_from_step,
      0);
}

}  // namespace
}  // namespace mt::train
