// training.eval.prompts: what a run writes behind its evaluations, and that it learns as without.
// EveryAxisTest has the same texts of every layout.
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/spec/memory_formula.h"
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

// Each token is progress of the ranks that wait, too: another replica's watchdog looks for it.
TEST_F(SamplesTest, ReplicasThatWaitMakeProgress) {
  layout_ = {"parallel.data=2", "checkpoint.directory=none"};
  const std::vector<RankOutcome> without = RunWith({});
  const std::vector<RankOutcome> with = RunWith(kPrompts);
  ExpectClean(with, 20);
  ExpectEqualCurve(with[0].seen.steps, without[0].seen.steps);
  // Of two evaluations: two prompts, each with a piece.
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_GE(with[rank].seen.progress_calls, without[rank].seen.progress_calls + 8) << rank;
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
      EXPECT_EQ(samples[i].text, texts[i]["text"].get<std::string>());
      EXPECT_EQ(samples[i].finish, texts[i]["finish"].get<std::string>());
    }
  }
}

// It is evaluated twice: as the steps before it, and over the whole split.
TEST_F(SamplesTest, TheLastStepWritesOnceWhereTheBestIsKept) {
  std::vector<std::string> overrides = kPrompts;
  for (const char* const more :
       {"checkpoint.directory=best", "checkpoint.every_iters=10", "checkpoint.keep_best=1"})
    overrides.emplace_back(more);
  const std::vector<RankOutcome> run = RunWith(overrides);
  ExpectClean(run, 20);
  std::vector<std::pair<int64_t, size_t>> written;  // step, number of texts
  for (const EvalRecord& eval : run[0].seen.evals)
    written.emplace_back(eval.step, eval.samples.size());
  EXPECT_EQ(written, (std::vector<std::pair<int64_t, size_t>>{{10, 2}, {20, 0}, {20, 2}}));
  EXPECT_TRUE(run[0].seen.evals.back().final) << "the newest one, which mtctl samples shows";
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

// Where memory is short, the prompts come before what a run can do without.
class SampleMemoryTest : public SamplesTest {
 protected:
  // Trains with these overrides, and well, on ranks that may take so much; what the first one has
  // taken for its engine.
  int64_t TakenWithin(int64_t limit_bytes, std::vector<std::string> overrides) {
    adjust_ = [limit_bytes](int, TrainArgs* args) { args->memory_limit_bytes = limit_bytes; };
    const size_t texts = overrides.front() == kPrompts.front() ? 2U : 0U;
    overrides.push_back("checkpoint.directory=run" + std::to_string(++runs_));
    const std::vector<RankOutcome> ranks = RunWith(overrides);
    ExpectClean(ranks, 20);
    if (ranks[0].seen.steps.empty()) {
      ADD_FAILURE() << ranks[0].result.status;
      return 0;
    }
    for (const EvalRecord& eval : ranks[0].seen.evals) EXPECT_EQ(eval.samples.size(), texts);
    return memory::Total(MemoryOf(ranks[0].seen.steps.back()));
  }
  static std::vector<std::string> With(const std::vector<std::string>& overrides) {
    std::vector<std::string> all = kPrompts;
    all.insert(all.end(), overrides.begin(), overrides.end());
    return all;
  }
  // What a rank takes for the prompts, by the formula.
  int64_t OfPrompts() const {
    std::vector<std::string> job = With(layout_);
    job.emplace_back("training.eval.every_iters=10");
    return spec::PromptMemoryOf(TinyJob(job), 0);
  }
  static constexpr int64_t kAmple = int64_t{1} << 32;
  static constexpr int64_t kLittle = 4096;
  int runs_ = 0;
};

TEST_F(SampleMemoryTest, TheCopyOfSavesGivesWay) {
  const std::vector<std::string> saves = {"checkpoint.every_iters=10",
                                          "checkpoint.async_save=true"};
  const int64_t with_copy = TakenWithin(kAmple, With(saves));
  const int64_t needed = with_copy + OfPrompts();
  // Workspace is not in the formula.
  EXPECT_EQ(TakenWithin(needed + (int64_t{1} << 20), With(saves)), with_copy);
  EXPECT_LT(TakenWithin(needed - kLittle, With(saves)), with_copy) << "else there were no samples";
  EXPECT_EQ(TakenWithin(needed - kLittle, saves), with_copy) << "without prompts";
}

TEST_F(SampleMemoryTest, InputsAreGatheredAgain) {
  layout_ = {"parallel.tensor=2", "parallel.sequence_parallel=true"};
  const std::vector<std::string> plain = {"checkpoint.async_save=false"};
  const int64_t kept = TakenWithin(kAmple, With(plain));
  const int64_t needed = 2 * (kept + OfPrompts());
  EXPECT_EQ(TakenWithin(needed + kLittle, With(plain)), kept) << "two ranks of one machine";
  EXPECT_LT(TakenWithin(needed - kLittle, With(plain)), kept);
  EXPECT_EQ(TakenWithin(needed - kLittle, plain), kept) << "without prompts";
}

// Nothing else can make room for them.
TEST_F(SampleMemoryTest, TooLittleForPromptsIsSaidBeforeTheFirstStep) {
  const int64_t engine = TakenWithin(kAmple, With({"checkpoint.async_save=false"}));
  ASSERT_GT(OfPrompts(), kLittle);
  adjust_ = [engine](int, TrainArgs* args) { args->memory_limit_bytes = engine + kLittle; };
  const std::vector<RankOutcome> ranks = RunWith(With({"checkpoint.directory=none"}));
  EXPECT_FALSE(ranks[0].created);
  EXPECT_EQ(failure::CauseOf(ranks[0].result.status), failure::Cause::kOutOfMemory);
  EXPECT_THAT(std::string(ranks[0].result.status.message()), HasSubstr("training.eval.prompts: "));
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
