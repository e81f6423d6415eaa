// The same job in different layouts: 1, 2 and 4 replicas, small and large microbatches, give the
// same curve within the bounds that the engine promises, and the same layout twice the same bits.
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

class LayoutTest : public TrainTest {
 protected:
  // The run of rank 0, without checkpoints.
  Observed RunWhole(std::vector<std::string> overrides) {
    overrides.emplace_back("checkpoint.directory=none");
    std::vector<RankOutcome> outcomes = Run(overrides);
    ExpectClean(outcomes, 20);
    for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.result.completed);
    EXPECT_EQ(outcomes[0].seen.steps.size(), 20U);
    return outcomes[0].seen;
  }
};

TEST_F(LayoutTest, ReplicasGiveTheSameCurveInDouble) {
  const Observed one = RunWhole({"parallel.data=1"});
  // An untrained model knows nothing: the mean loss is near ln 257.
  EXPECT_NEAR(one.steps.front().loss(), std::log(257.0), 0.05);
  EXPECT_LT(one.steps.back().loss(), one.steps.front().loss() - 0.2) << "it learns";
  ExpectSameCurve(RunWhole({"parallel.data=2"}).steps, one.steps, 1e-12, 1e-12);
  ExpectSameCurve(RunWhole({"parallel.data=4"}).steps, one.steps, 1e-12, 1e-12);
}

// Overrides on top of 4 layers.
struct LayoutCase {
  const char* name;
  std::vector<std::string> overrides;
};
std::vector<std::string> FourLayers(std::vector<std::string> overrides) {
  overrides.emplace_back("model.layers=4");
  overrides.emplace_back("training.eval.every_iters=10");
  overrides.emplace_back("training.eval.iters=2");
  overrides.emplace_back("training.eval.prompts=[abc, x, \"\"]");
  overrides.emplace_back("training.eval.prompt_tokens=10");
  return overrides;
}

std::vector<std::string> TextsOf(const EvalRecord& eval) {
  std::vector<std::string> texts;
  for (const EvalSample& sample : eval.samples) texts.push_back(sample.text);
  return texts;
}

class EveryAxisTest : public LayoutTest, public ::testing::WithParamInterface<LayoutCase> {};

TEST_P(EveryAxisTest, GivesTheCurveOfOneRank) {
  const Observed one = RunWhole(FourLayers({}));
  const Observed got = RunWhole(FourLayers(GetParam().overrides));
  ExpectSameCurve(got.steps, one.steps, 1e-12, 1e-12);
  ASSERT_EQ(got.evals.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got.evals[i].tokens, one.evals[i].tokens);
    EXPECT_LE(std::abs(got.evals[i].loss - one.evals[i].loss), 1e-12 * one.evals[i].loss);
    ASSERT_TRUE(got.evals[i].bits_per_byte && one.evals[i].bits_per_byte);
    EXPECT_LE(std::abs(*got.evals[i].bits_per_byte - *one.evals[i].bits_per_byte),
              1e-12 * *one.evals[i].bits_per_byte);
    EXPECT_EQ(TextsOf(one.evals[i]).size(), 3U);
    EXPECT_EQ(TextsOf(got.evals[i]), TextsOf(one.evals[i]));
  }
  EXPECT_EQ(got.infos[0].parameters, one.infos[0].parameters);
  EXPECT_EQ(got.steps[3].model_flops(), one.steps[3].model_flops());
  const Observed again = RunWhole(FourLayers(GetParam().overrides));
  ExpectEqualCurve(again.steps, got.steps);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EveryAxisTest,
    ::testing::Values(LayoutCase{"Tensor",
                                 {"parallel.tensor=2", "parallel.sequence_parallel=false"}},
                      LayoutCase{"Sequence", {"parallel.tensor=2"}},
                      LayoutCase{"Pipeline", {"parallel.pipeline=2"}},
                      LayoutCase{"GPipe", {"parallel.pipeline=4", "parallel.schedule=gpipe"}},
                      LayoutCase{"Zero", {"parallel.data=4", "parallel.zero_stage=1"}},
                      LayoutCase{"Cube",
                                 {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2",
                                  "parallel.virtual_stages=2", "parallel.zero_stage=1",
                                  "parallel.bucket_size=1024"}}),
    [](const auto& test) { return test.param.name; });

TEST_F(LayoutTest, ReplicasGiveTheSameCurveInSingle) {
  const std::string fp32 = "training.precision=fp32";
  const Observed one = RunWhole({"parallel.data=1", fp32});
  ExpectSameCurve(RunWhole({"parallel.data=2", fp32}).steps, one.steps, 2e-6, 3e-5);
  ExpectSameCurve(RunWhole({"parallel.data=4", fp32}).steps, one.steps, 2e-6, 3e-5);
}

TEST_F(LayoutTest, SameLayoutTwiceIsBitEqual) {
  for (const char* precision : {"training.precision=fp32", "training.precision=fp64"}) {
    const Observed first = RunWhole({"parallel.data=2", precision});
    ExpectEqualCurve(RunWhole({"parallel.data=2", precision}).steps, first.steps);
  }
}

TEST_F(LayoutTest, GradientAccumulationGivesTheSameCurve) {
  const Observed whole = RunWhole({"training.micro_batch_size=8"});
  for (const char* micro : {"1", "2", "4"}) {
    ExpectSameCurve(RunWhole({std::string("training.micro_batch_size=") + micro}).steps,
                    whole.steps, 1e-12, 1e-12);
  }
}

TEST_F(LayoutTest, EvaluationCountsEachTokenOnceInEveryLayout) {
  const std::vector<std::string> eval = {"training.eval.every_iters=8", "training.eval.iters=2"};
  std::vector<Observed> runs;
  for (const char* layout : {"1", "2", "4"}) {
    std::vector<std::string> overrides = eval;
    overrides.push_back(std::string("parallel.data=") + layout);
    runs.push_back(RunWhole(overrides));
  }
  for (const Observed& run : runs) {
    ASSERT_EQ(run.evals.size(), 3U);  // after steps 8 and 16, and after the last one
    for (size_t i = 0; i < 3; ++i) {
      const EvalRecord& got = run.evals[i];
      const EvalRecord& want = runs[0].evals[i];
      EXPECT_EQ(got.step, i == 2 ? 20 : 8 * (static_cast<int64_t>(i) + 1));
      EXPECT_EQ(got.final, i == 2);
      EXPECT_EQ(got.tokens, want.tokens);
      EXPECT_LE(std::abs(got.loss - want.loss), 1e-12 * want.loss);
      EXPECT_EQ(got.split, "valid");
    }
    EXPECT_EQ(run.evals[0].tokens, 2 * 8 * 16);
    // Documents 180 to 199 of the split 90,10,0; each token but the first is a label once.
    int64_t tokens = -1;
    for (int d = 180; d < 200; ++d) tokens += 20 + (d * 7) % 40;
    EXPECT_EQ(run.evals[2].tokens, tokens);
    // Each byte is a token; the end of each of the 20 documents is a token, and no text.
    ASSERT_TRUE(run.evals[2].bits_per_byte.has_value());
    const double nats = run.evals[2].loss * static_cast<double>(tokens);
    const double bytes = static_cast<double>(tokens) - 20;
    EXPECT_NEAR(*run.evals[2].bits_per_byte, nats / std::log(2.0) / bytes, 1e-12);
  }
  EXPECT_NE(runs[0].evals[0].loss, runs[0].evals[1].loss);
}

TEST_F(LayoutTest, RecordsSayWhatTheStepWas) {
  const Observed run = RunWhole({"parallel.data=2", "optimizer.warmup=10"});
  const StepRecord& last = run.steps.back();
  EXPECT_EQ(run.steps.front().learning_rate(), 0.0) << "warm-up starts at 0";
  EXPECT_DOUBLE_EQ(run.steps[5].learning_rate(), 0.5e-3);
  EXPECT_EQ(last.tokens(), 8 * 16);
  EXPECT_EQ(last.consumed_samples(), 160);
  EXPECT_DOUBLE_EQ(last.perplexity(), std::exp(last.loss()));
  // Nearly all tokens of a step are bytes, and none is more than one.
  ASSERT_TRUE(last.has_bits_per_byte());
  EXPECT_GT(last.bits_per_byte(), last.loss() / std::log(2.0));
  EXPECT_LT(last.bits_per_byte(), 1.1 * last.loss() / std::log(2.0));
  EXPECT_GT(last.step_seconds(), 0);
  EXPECT_GT(last.launch_seconds(), 0);
  EXPECT_NEAR(last.tokens_per_second(), 128 / last.step_seconds(), 1e-6 * last.tokens_per_second());
  EXPECT_GT(last.model_flops(), 0);
  // 6 L q S^2 per sample more: 2 layers x 16, sequence 16, 8 samples.
  EXPECT_EQ(last.model_flops_full() - last.model_flops(), 6.0 * 2 * 16 * 16 * 16 * 8);
  EXPECT_NEAR(last.tflops_per_slot_full(), last.model_flops_full() / last.step_seconds() / 1e12 / 2,
              1e-9 * last.tflops_per_slot_full());
  EXPECT_GT(last.host_memory_bytes(), 0);
  double phases = 0;
  for (const auto& [phase, spent] : last.phase_seconds()) phases += spent;
  EXPECT_LE(phases, last.step_seconds() * 1.01);
  EXPECT_GT(SecondsIn(last, report::StepPhase::kForward), 0);
  EXPECT_GT(SecondsIn(last, report::StepPhase::kBackward), 0);
  EXPECT_GT(SecondsIn(last, report::StepPhase::kDpComm), 0);
  EXPECT_GT(MemoryOf(last)[static_cast<size_t>(memory::Kind::kActivations)], 0);
  EXPECT_EQ(run.states, (std::vector<TrainState>{TrainState::kLoading, TrainState::kReady,
                                                 TrainState::kTraining, TrainState::kExiting}));
}

TEST_F(LayoutTest, CountersRiseWithEveryStepOnEveryRank) {
  const auto outcomes =
      RunJob(TinyJob({"parallel.data=2", "checkpoint.directory=none"}), {.root = dir_.path()});
  for (const RankOutcome& rank : outcomes) {
    const std::vector<RankCounters>& seen = rank.seen.counters;
    ASSERT_EQ(seen.size(), 20U);
    EXPECT_EQ(seen.back().tokens, 20 * 8 * 16 / 2) << "this rank's share";
    double steps = 0;
    for (size_t i = 0; i < seen.size(); ++i) {
      steps += seen[i].step_seconds;
      EXPECT_EQ(seen[i].tokens, static_cast<int64_t>(i + 1) * 64);
      EXPECT_GT(seen[i].comm.dp.of(comm::CommOp::kAllReduce).num_calls,
                i == 0 ? 0 : seen[i - 1].comm.dp.of(comm::CommOp::kAllReduce).num_calls);
    }
    EXPECT_GT(seen.back().comm.dp.of(comm::CommOp::kAllReduce).payload_bytes, 0);
    double phases = 0;
    for (const double spent : seen.back().phase_seconds) phases += spent;
    EXPECT_GE(phases * 1.01, steps) << "and what lay between the steps";
    EXPECT_GT(seen.back().memory_bytes[static_cast<size_t>(memory::Kind::kWeights)], 0);
  }
}

}  // namespace
}  // namespace mt::train
