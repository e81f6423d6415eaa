// Texts that somebody asks a running job for: what they are, what is refused, and that the run
// learns as if nobody had asked.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
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

Command Ask(TextRequest request, const std::string& id = "ask") {
  return {.kind = CommandKind::kDecode, .id = id, .texts = std::move(request)};
}

// Two prompts, of each two texts that are drawn.
TextRequest Drawn() {
  return {.prompts = {"abc", ""},
          .samples = 2,
          .tokens = 7,
          .sampling = {.temperature = 1.2, .top_k = 100, .seed = 7}};
}

class AskedTextsTest : public TrainTest {
 protected:
  // Twelve steps, with memory for texts of 12 tokens.
  std::vector<RankOutcome> RunTwelve(std::vector<std::string> overrides, Commands scripted = {}) {
    overrides.emplace_back("training.train_iters=12");
    overrides.emplace_back("training.eval.decode_tokens=12");
    return Run(std::move(overrides), std::move(scripted));
  }
  static const CommandResult& Done(const std::vector<RankOutcome>& ranks, size_t number = 0) {
    static const CommandResult kNone = {};
    const auto& done = ranks[0].seen.commands_done;
    EXPECT_GT(done.size(), number);
    return number < done.size() ? done[number] : kNone;
  }
};

struct AskedCase {
  const char* name;
  std::vector<std::string> layout;
};

class EveryLayoutAskedTest : public AskedTextsTest,
                             public ::testing::WithParamInterface<AskedCase> {};

// Behind step 6, which is saved: as its checkpoint is read afterwards, by a process of its own.
TEST_P(EveryLayoutAskedTest, TheyAreThoseOfTheStepAndTheRunLearnsAsWithout) {
  layout_ = GetParam().layout;
  const auto without = RunTwelve({"checkpoint.directory=none"});
  const auto with =
      RunTwelve({"checkpoint.directory=asked", "checkpoint.every_iters=6"},
                {{5, Ask(Drawn())}, {8, Ask({.prompts = {"xy"}, .tokens = 3}, "again")}});
  ExpectClean(with, 12);
  ExpectEqualCurve(with[0].seen.steps, without[0].seen.steps);
  const CommandResult& done = Done(with);
  ASSERT_TRUE(done.error.ok()) << done.error;
  EXPECT_EQ(done.step, 6);
  EXPECT_EQ(Done(with, 1).texts.size(), 1U);
  ASSERT_FALSE(with[0].seen.saves.empty());
  ASSERT_EQ(with[0].seen.saves[0].step, 6);
  decode::GenerateArgs args{.path = with[0].seen.saves[0].path};
  args.flags.prompts = Drawn().prompts;
  args.flags.tokens = 7;
  args.flags.samples = 2;
  args.flags.temperature = 1.2;
  args.flags.top_k = 100;
  args.flags.seed = 7;
  args.flags.json = true;
  std::string json;
  args.out = [&json](std::string_view text) {
    json += text;
    return OkStatus();
  };
  const Status read = decode::RunGenerate(args);
  ASSERT_TRUE(read.ok()) << read;
  const nlohmann::json texts = nlohmann::json::parse(json)["texts"];
  ASSERT_EQ(done.texts.size(), 4U);
  ASSERT_EQ(texts.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(done.texts[i].prompt, texts[i]["prompt_number"].get<int64_t>());
    EXPECT_EQ(done.texts[i].sample, texts[i]["sample"].get<int64_t>());
    EXPECT_EQ(done.texts[i].text, texts[i]["text"].get<std::string>());
    EXPECT_EQ(done.texts[i].finish, texts[i]["finish"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EveryLayoutAskedTest,
    ::testing::Values(AskedCase{"One", {}}, AskedCase{"Tensor", {"parallel.tensor=2"}},
                      AskedCase{"Pipeline", {"parallel.pipeline=2"}},
                      AskedCase{"Zero", {"parallel.data=2", "parallel.zero_stage=1"}},
                      AskedCase{"Cube", CubeLayout()}),
    [](const auto& test) { return test.param.name; });

// Of ranks that wait, too: watchdogs look for it.
TEST_F(AskedTextsTest, EveryRankMakesProgress) {
  layout_ = {"parallel.data=2", "checkpoint.directory=none"};
  const auto without = RunTwelve({});
  const auto with = RunTwelve({}, {{5, Ask(Drawn())}});
  // Four texts begin, of two prompts.
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_GE(with[rank].seen.progress_calls, without[rank].seen.progress_calls + 6) << rank;
}

// The scale of a 16-bit run goes on as without, too.
TEST_F(AskedTextsTest, TheLossScaleIsAsWithout) {
  const std::vector<std::string> half = {"checkpoint.directory=none", "training.precision=fp16",
                                         "training.loss_scale.initial=1024",
                                         "training.loss_scale.window=4"};
  const auto without = RunTwelve(half);
  const auto with = RunTwelve(half, {{5, Ask(Drawn())}});
  ExpectClean(with, 12);
  EXPECT_TRUE(Done(with).error.ok()) << Done(with).error;
  ExpectEqualCurve(with[0].seen.steps, without[0].seen.steps);
  for (size_t i = 0; i < with[0].seen.steps.size(); ++i)
    EXPECT_EQ(with[0].seen.steps[i].loss_scale(), without[0].seen.steps[i].loss_scale());
  EXPECT_GT(with[0].seen.steps.back().loss_scale(), 1024) << "else nothing was compared";
}

// Beside the prompts of evaluations, which are longer: one cache has room for both.
TEST_F(AskedTextsTest, EvaluationsWriteTheirsAsWithout) {
  const std::vector<std::string> prompts = {
      "checkpoint.directory=none", "training.eval.every_iters=6", "training.eval.iters=1",
      "training.eval.prompts=[abc]", "training.eval.prompt_tokens=11"};
  std::vector<std::string> alone = prompts;
  alone.emplace_back("training.train_iters=12");
  const auto without = Run(alone);
  const auto with = RunTwelve(prompts, {{4, Ask(Drawn())}, {9, Ask(Drawn())}});
  ExpectClean(with, 12);
  EXPECT_EQ(Done(with, 1).texts.size(), 4U);
  ExpectEqualCurve(with[0].seen.steps, without[0].seen.steps);
  ASSERT_EQ(with[0].seen.evals.size(), without[0].seen.evals.size());
  for (size_t i = 0; i < with[0].seen.evals.size(); ++i) {
    const EvalRecord& eval = with[0].seen.evals[i];
    EXPECT_EQ(eval.loss, without[0].seen.evals[i].loss);
    ASSERT_EQ(eval.samples.size(), 1U);
    EXPECT_EQ(eval.samples[0].text, without[0].seen.evals[i].samples.at(0).text);
  }
}

TEST_F(AskedTextsTest, WhatTheModelCannotReadIsRefusedAndTheRunGoesOn) {
  layout_ = {"parallel.tensor=2", "checkpoint.directory=none"};
  const auto without = RunTwelve({});
  const auto with =
      RunTwelve({}, {{2, Ask({.prompts = {"a", std::string(13, 'a')}})},
                     {4, Ask({.prompts = std::vector<std::string>(33, "a"), .samples = 2})},
                     {6, Ask({.prompts = {"a"}, .sampling = {.temperature = -1}})},
                     {8, Ask({.prompts = {std::string(12, 'a')}, .tokens = 50})}});
  ExpectClean(with, 12);
  ExpectEqualCurve(with[0].seen.steps, without[0].seen.steps);
  EXPECT_EQ(base::Message(Done(with, 0).error),
            "prompt 2 has 13 tokens, and the job has planned memory for texts of 12 "
            "(training.eval.decode_tokens): shorten it, or have a checkpoint read without "
            "--in-job");
  EXPECT_THAT(std::string(base::Message(Done(with, 1).error)),
              HasSubstr("2 samples of 33 prompts; a job that trains writes 1 to 64 texts"));
  EXPECT_THAT(std::string(base::Message(Done(with, 2).error)), HasSubstr("temperature"));
  ASSERT_EQ(Done(with, 3).texts.size(), 1U) << Done(with, 3).error;
  EXPECT_EQ(Done(with, 3).texts[0].finish, "positions") << "no token has a place behind it";
}

// Numbers for a tokenizer that has nothing else, one of them the model's and one not.
TEST_F(AskedTextsTest, ATokenThatTheModelLacksIsNamed) {
  const auto ranks =
      RunTwelve({"checkpoint.directory=none", "data.tokenizer.type=null", "model.vocab_size=257"},
                {{2, Ask({.prompts = {"1 2", "1 300"}})}});
  ExpectClean(ranks, 12);
  EXPECT_THAT(std::string(base::Message(Done(ranks).error)), HasSubstr("prompt 2"));
}

TEST_F(AskedTextsTest, WithoutMemoryForThemTheFieldIsNamed) {
  const auto ranks = Run({"checkpoint.directory=none", "parallel.data=2"}, {{3, Ask(Drawn())}});
  ExpectClean(ranks, 20);
  EXPECT_THAT(std::string(base::Message(Done(ranks).error)),
              HasSubstr("training.eval.decode_tokens is 0"));
}

TEST_F(AskedTextsTest, HeldRanksAndAnEndedRunSayWhy) {
  const auto ranks = RunTwelve({"checkpoint.directory=none", "parallel.pipeline=2"},
                               {{3, {.kind = CommandKind::kHold, .id = "h"}},
                                {6, Ask(Drawn(), "held")},
                                {8, {.kind = CommandKind::kResume, .id = "r"}}});
  ExpectClean(ranks, 12);
  EXPECT_EQ(Done(ranks, 1).id, "held");
  EXPECT_THAT(std::string(base::Message(Done(ranks, 1).error)), HasSubstr("the ranks are held"));
  // What the last step carries finds no step to act before.
  const auto late = RunTwelve({"checkpoint.directory=none"}, {{12, Ask(Drawn())}});
  ExpectClean(late, 12);
  EXPECT_THAT(std::string(base::Message(Done(late).error)),
              HasSubstr("the run ended after step 12, before the ranks wrote"));
}

// What a run learns is for its steps to judge.
TEST_F(AskedTextsTest, WeightsThatAreNoNumbersWriteNothing) {
  adjust_ = [](int, TrainArgs* args) {
    args->after_step = [](int64_t step, const params::ParamStore& store) {
      const kernels::Tensor weights = store.weights();
      if (step == 6) std::memset(weights.data, 0xFF, static_cast<size_t>(weights.Bytes()));
    };
  };
  const auto ranks = RunTwelve({"checkpoint.directory=none"}, {{5, Ask(Drawn())}});
  EXPECT_THAT(std::string(base::Message(Done(ranks).error)), HasSubstr("not finite"));
  EXPECT_EQ(failure::CauseOf(ranks[0].result.status), failure::Cause::kNumeric)
      << ranks[0].result.status;
}

// Each look at it is a minute later.
class HastyClock final : public base::Clock {
 public:
  base::MonotonicTime Now() const override {
    return Real()->Now() + std::chrono::minutes(2 * ++looks_);
  }
  base::WallTime WallNow() const override { return Real()->WallNow(); }

 private:
  mutable std::atomic<int> looks_ = 0;
};

// The clock of rank 0 counts: the others stop at the same token, and a replica waits no longer.
TEST_F(AskedTextsTest, AStepDoesNotWaitForEver) {
  const HastyClock hasty;
  adjust_ = [&hasty](int rank, TrainArgs* args) {
    if (rank == 0) args->clock = &hasty;
  };
  layout_ = CubeLayout();
  const auto ranks = RunTwelve({"checkpoint.directory=none"}, {{5, Ask(Drawn())}});
  ExpectClean(ranks, 12);
  const CommandResult& done = Done(ranks);
  ASSERT_EQ(done.texts.size(), 4U) << done.error;
  for (const DecodedText& text : done.texts) EXPECT_EQ(text.finish, "time");
}

}  // namespace
}  // namespace mt::train
