// Runs whose positions restart at documents: the same curve in every layout, whichever stages read
// data for their positions alone, and after a stop.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

using Fields = std::vector<std::string>;

struct PositionCase {
  const char* name;
  Fields model;
};

class RestartingRunTest : public TrainTest, public ::testing::WithParamInterface<PositionCase> {
 protected:
  static constexpr int64_t kSteps = 6;

  // The run of rank 0, which ends after `steps`.
  Observed RunOf(const Fields& more, int64_t steps = kSteps) {
    Fields fields = {"training.train_iters=6", "model.layers=4", "training.eval.every_iters=3",
                     "training.eval.iters=2", "checkpoint.directory=none"};
    fields.insert(fields.end(), GetParam().model.begin(), GetParam().model.end());
    fields.insert(fields.end(), more.begin(), more.end());
    std::vector<RankOutcome> outcomes = Run(fields);
    ExpectClean(outcomes, steps);
    return std::move(outcomes[0].seen);
  }
  Observed Restarting(Fields more, int64_t steps = kSteps) {
    more.emplace_back("data.reset_positions=true");
    return RunOf(more, steps);
  }
};

TEST_P(RestartingRunTest, EveryLayoutGivesTheCurveOfOneRank) {
  const Observed one = Restarting({});
  const Observed through = RunOf({});
  ASSERT_EQ(one.steps.size(), size_t{kSteps});
  ASSERT_EQ(one.evals.size(), 2U);
  EXPECT_NE(one.steps[0].loss(), through.steps[0].loss()) << "the test's own proof";
  const Fields layouts[] = {
      {"parallel.pipeline=4"},
      {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2", "parallel.virtual_stages=2",
       "parallel.zero_stage=1", "training.recompute.mode=full"}};
  for (const Fields& layout : layouts) {
    const Observed got = Restarting(layout);
    ExpectSameCurve(got.steps, one.steps, 1e-12, 1e-12);
    ASSERT_EQ(got.evals.size(), one.evals.size());
    for (size_t i = 0; i < got.evals.size(); ++i)
      EXPECT_NEAR(got.evals[i].loss, one.evals[i].loss, 1e-12 * one.evals[i].loss);
    ExpectEqualCurve(Restarting(layout).steps, got.steps);
  }
}

TEST_P(RestartingRunTest, GoesOnAsItWouldHave) {
  const std::vector<StepRecord> whole = Restarting({}).steps;
  const Fields saves = {"checkpoint.directory=parts", "checkpoint.at_end=true"};
  Fields begin = saves;
  begin.emplace_back("training.exit_at_iter=2");
  std::vector<StepRecord> parts = Restarting(begin, 2).steps;
  const std::vector<StepRecord> rest = Restarting(saves).steps;
  parts.insert(parts.end(), rest.begin(), rest.end());
  ExpectEqualCurve(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(
    Positions, RestartingRunTest,
    ::testing::Values(PositionCase{"learned", {}},
                      PositionCase{"rope", {"model.position=rope", "model.qk_norm=true"}}),
    [](const auto& test) { return test.param.name; });

// Tokens by themselves tell no documents.
TEST_F(TrainTest, RestartsNeedTheTokenThatEndsDocuments) {
  const auto outcomes = Run({"checkpoint.directory=none", "model.vocab_size=257",
                             "data={path: [text], split: \"90,10,0\", reset_positions: true}"});
  EXPECT_THAT(base::Message(outcomes[0].result.status),
              testing::HasSubstr("data.reset_positions: no end-of-document id is known"));
}

}  // namespace
}  // namespace mt::train
