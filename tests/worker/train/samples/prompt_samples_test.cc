// training.eval.prompts: what a run writes behind its evaluations, and that it learns as without.
// EveryAxisTest has the same texts of every layout.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/train/train_rig.h"
#include "worker/decode/generate_command.h"
#include "worker/params/param_store.h"

namespace mt::train {
namespace {

using testing::HasSubstr;

class SamplesTest : public TrainTest {
 protected:
  // With evaluations after steps 10 and 20, and these besides.
  std::vector<RankOutcome> RunWith(std::vector<std::string> overrides) {
    overrides.emplace_back("training.eval.every_iters=10");
    overrides.emplace_back("training.eval.iters=1");
    return Run(overrides);
  }
};

const std::vector<std::string> kPrompts = {"training.eval.prompts=[abc, \"\"]",
                                           "training.eval.prompt_tokens=9"};

TEST_F(SamplesTest, TheRunLearnsAsWithout) {
  const std::vector<RankOutcome> without = RunWith({"checkpoint.directory=none"});
  std::vector<std::string> overrides = kPrompts;
  overrides.emplace_back("checkpoint.directory=none");
  const std::vector<RankOutcome> with = RunWith(overrides);
  ExpectClean(with, 20);
  ExpectEqualCurve(with[0].seen.steps, without[0].seen.steps);
  ASSERT_EQ(with[0].seen.evals.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const EvalRecord& got = with[0].seen.evals[i];
    EXPECT_EQ(got.loss, without[0].seen.evals[i].loss);
    ASSERT_EQ(got.samples.size(), 2U);
    EXPECT_EQ(got.samples[0].prompt, "abc");
    EXPECT_EQ(got.samples[1].prompt, "");
    EXPECT_TRUE(without[0].seen.evals[i].samples.empty());
  }
  EXPECT_GT(with[0].seen.progress_calls, without[0].seen.progress_calls)
      << "each token is progress, which watchdogs wait for";
}

// As the checkpoint of the same step is read afterwards, by a process of its own.
TEST_F(SamplesTest, AreThoseOfTheCheckpoint) {
  for (const char* const temperature : {"0", "1.5"}) {
    std::vector<std::string> overrides = kPrompts;
    overrides.emplace_back("checkpoint.at_end=true");
    overrides.emplace_back(std::string("checkpoint.directory=drawn") + temperature);
    overrides.emplace_back(std::string("training.eval.prompt_temperature=") + temperature);
    const std::vector<RankOutcome> run = RunWith(overrides);
    ExpectClean(run, 20);
    ASSERT_EQ(run[0].seen.evals.size(), 2U);
    ASSERT_EQ(run[0].seen.saves.size(), 1U);
    decode::GenerateArgs args{.path = run[0].seen.saves[0].path};
    args.flags.prompts = {"abc", ""};
    args.flags.tokens = 9;
    args.flags.temperature = std::stod(temperature);
    args.flags.seed = 1234;  // training.seed
    args.flags.json = true;
    std::string json;
    args.out = [&json](std::string_view text) {
      json += text;
      return OkStatus();
    };
    const Status read = decode::RunGenerate(args);
    ASSERT_TRUE(read.ok()) << read;
    const nlohmann::json texts = nlohmann::json::parse(json)["texts"];
    const std::vector<EvalSample>& samples = run[0].seen.evals[1].samples;
    ASSERT_EQ(texts.size(), samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(samples[i].text, texts[i]["text"]);
      EXPECT_EQ(samples[i].finish, texts[i]["finish"]);
    }
  }
}

// What a run learns is for its steps to judge.
TEST_F(SamplesTest, WeightsThatAreNoNumbersWriteNothingAndEndNoEvaluation) {
  adjust_ = [](int, TrainArgs* args) {
    args->after_step = [](int64_t step, const params::ParamStore& store) {
      const kernels::Tensor weights = store.weights();
      if (step == 10) std::memset(weights.data, 0xFF, static_cast<size_t>(weights.Bytes()));
    };
  };
  std::vector<std::string> overrides = kPrompts;
  overrides.emplace_back("checkpoint.directory=none");
  const std::vector<RankOutcome> run = RunWith(overrides);
  ASSERT_EQ(run[0].seen.evals.size(), 1U);
  EXPECT_TRUE(std::isnan(run[0].seen.evals[0].loss));
  EXPECT_TRUE(run[0].seen.evals[0].samples.empty());
  EXPECT_EQ(failure::CauseOf(run[0].result.status), failure::Cause::kNumeric)
      << run[0].result.status;
}

// Before the first step, by field.
TEST_F(SamplesTest, WhatTheModelCannotReadIsRefused) {
  const std::string sixteen(17, 'a');
  for (const auto& [overrides, why] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"training.eval.prompts=[" + sixteen + "]"},
            "training.eval.prompts: prompt 1 has 17 tokens, the model has 16 positions"},
           {{"training.eval.prompts=[\"1 2\", \"1 300\"]", "data.tokenizer.type=null",
             "model.vocab_size=257"},
            "training.eval.prompts: prompt 2"}}) {
    const std::vector<RankOutcome> outcomes = RunWith(overrides);
    EXPECT_THAT(std::string(outcomes[0].result.status.message()), HasSubstr(why));
    EXPECT_EQ(outcomes[0].seen.steps.size(), 0U);
  }
}

}  // namespace
}  // namespace mt::train
