// A run that is complete, started once more: it says so, trains and saves nothing.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/run_list.h"

namespace mt::train {
namespace {

using checkpoint::CheckpointId;
using testing::StartsWith;

class CompleteRunTest : public TrainTest {
 protected:
  CompleteRunTest() { layout_ = {"checkpoint.at_end=true"}; }
  std::string RunOf(const std::string& directory = "tiny") const {
    return checkpoint::ReadRuns(dir_.path() + "/checkpoints/" + directory).value().runs.back().id;
  }
  // Rank 0's, of ranks that have all ended well after the last step.
  RankOutcome ToTheEnd(const std::vector<std::string>& overrides = {}) {
    std::vector<RankOutcome> outcomes = Run(overrides);
    ExpectClean(outcomes, 20);
    for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.result.completed);
    return std::move(outcomes.at(0));
  }
  static std::string MessageOf(const std::string& run) {
    return "nothing to do: run " + run + " has 20 of 20 steps";
  }
};

TEST_F(CompleteRunTest, HasNothingToDo) {
  layout_.insert(layout_.end(), {"parallel.data=2", "training.eval.every_iters=10"});
  const RankOutcome first = ToTheEnd();
  EXPECT_THAT(first.result.message, StartsWith("completed after step 20 of 20"));
  EXPECT_EQ(first.seen.evals.back().step, 20);
  const std::string run = RunOf();
  for (int i = 0; i < 2; ++i) {
    const RankOutcome again = ToTheEnd();
    EXPECT_EQ(again.result.message, MessageOf(run));
    EXPECT_TRUE(again.seen.steps.empty());
    EXPECT_TRUE(again.seen.saves.empty());
    ASSERT_EQ(again.seen.evals.size(), 1U) << "a job that evaluates does so at its end";
    EXPECT_EQ(again.seen.evals[0].loss, first.seen.evals.back().loss);
    EXPECT_EQ(again.seen.infos.at(0).run.id, run);
  }
  EXPECT_EQ(OnDisk(), (std::vector<CheckpointId>{{20, 1}}));
  EXPECT_EQ(RunOf(), run);
}

TEST_F(CompleteRunTest, IsOnlyWhatWasSavedWithItsLastStep) {
  const RankOutcome first = ToTheEnd({"checkpoint.every_iters=15", "checkpoint.at_end=false"});
  EXPECT_THAT(first.result.message, StartsWith("completed after step 20 of 20"));
  const RankOutcome again = ToTheEnd();
  EXPECT_THAT(again.result.message, StartsWith("completed after step 20 of 20"));
  EXPECT_EQ(again.seen.steps.size(), 5U);
  EXPECT_EQ(ToTheEnd().result.message, MessageOf(RunOf()));
}

TEST_F(CompleteRunTest, OneThatBeginsWithAnothersLastStepIsSavedFirst) {
  ToTheEnd();
  const std::vector<std::string> branch = {"checkpoint.directory=branch"};
  const RankOutcome begun = ToTheEnd({"checkpoint.directory=branch", "checkpoint.load=tiny"});
  EXPECT_THAT(begun.result.message, StartsWith("completed after step 20 of 20"));
  EXPECT_EQ(OnDisk("branch").size(), 1U);
  EXPECT_EQ(ToTheEnd(branch).result.message, MessageOf(RunOf("branch")));
}

}  // namespace
}  // namespace mt::train
