// Generation with a small network of random weights over bytes.
#include "worker/decode/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/worker/model/model_rig.h"

namespace mt::decode {
namespace {

model::GptConfig Config() {
  return {.layers = 2,
          .hidden = 32,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .ffn = 48,
          .vocab = 257,
          .padded_vocab = 257,
          .seq = 40,
          .micro_batch = 1,
          .max_positions = 40,
          .init_std = 0.4,
          .dtype = kernels::DType::kF64};
}

// A network, and the byte tokenizer.
struct Rig {
  explicit Rig(int64_t sequences, model::GptConfig config = Config()) : rig(config) {
    stream = rig.backend().device().CreateStream(kernels::StreamPriority::kLow);
    auto made = DecodeModel::Make({.config = DecodeConfig(config, config.dtype, config.seq),
                                   .sequences = sequences,
                                   .memory_limit_bytes = int64_t{1} << 30,
                                   .backend = &rig.backend(),
                                   .stream = stream.get()});
    CHECK(made.ok());
    model = *std::move(made);
    for (const params::ParamId id : rig.Ids()) {
      std::vector<double> from = rig.Weight(id);
      const kernels::Tensor to = model->weights().Weight(rig.NameOf(id));
      CHECK_GE(std::ssize(from), to.NumElements());
      from.resize(static_cast<size_t>(to.NumElements()));
      if (to.dtype == kernels::DType::kF64) {
        std::copy(from.begin(), from.end(), to.Data<double>());
      } else {
        std::transform(from.begin(), from.end(), to.Data<float>(),
                       [](double value) { return static_cast<float>(value); });
      }
    }
    auto bytes = data::MakeTokenizer({.type = "byte"});
    CHECK(bytes.ok());
    tokenizer = *std::move(bytes);
  }

  GenerateReport Run(const GenerateRequest& request, const GenerateHooks& hooks = {}) {
    auto report = Generate(model.get(), *tokenizer, request, hooks);
    CHECK(report.ok()) << report.status().ToString();
    return *std::move(report);
  }

  model::ModelRig rig;
  std::unique_ptr<kernels::Stream> stream;
  std::unique_ptr<DecodeModel> model;
  std::unique_ptr<data::Tokenizer> tokenizer;
};

const GenerateRequest kGreedy = {.prompts = {{72, 105}, {7}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
                                 .tokens = 25};
GenerateRequest Sampled() {
  GenerateRequest request = kGreedy;
  request.samples = 3;
  request.sampling = {.temperature = 0.9, .top_k = 50, .top_p = 0.95, .seed = 4};
  return request;
}

TEST(GeneratorTest, GreedyIsTheArgmaxOfTheWholePrefix) {
  Rig rig(3);
  const GenerateReport report = rig.Run(kGreedy);
  ASSERT_EQ(report.continuations.size(), 3U);
  for (const Continuation& one : report.continuations) {
    std::vector<int32_t> ids = kGreedy.prompts[static_cast<size_t>(one.prompt)];
    for (const int32_t chosen : one.ids) {
      // Without the cache: all of it anew.
      std::vector<Row> rows;
      for (const int32_t id : ids) rows.push_back({id, 0, static_cast<int32_t>(rows.size())});
      rig.model->Forward(rows);
      const auto logits =
          RowOf(rig.model->Logits(std::vector<int>{static_cast<int>(ids.size()) - 1}), 0, 257);
      const auto largest = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ASSERT_EQ(chosen, largest) << "prompt " << one.prompt << ", token " << ids.size();
      ids.push_back(chosen);
    }
  }
}

TEST(GeneratorTest, TextDoesNotDependOnWhatIsBesideIt) {
  Rig wide(9), narrow(1), two(2);
  const GenerateReport all = wide.Run(Sampled());
  ASSERT_EQ(all.continuations.size(), 9U);
  EXPECT_EQ(all.prompt_tokens, 13);  // samples share their prompt
  for (Rig* const other : {&narrow, &two}) {
    const GenerateReport again = other->Run(Sampled());
    for (size_t i = 0; i < 9; ++i) EXPECT_EQ(again.continuations[i].ids, all.continuations[i].ids);
  }
  EXPECT_NE(all.continuations[0].ids, all.continuations[1].ids);
  GenerateRequest alone = Sampled();
  alone.prompts = {alone.prompts[2]};
  EXPECT_EQ(narrow.Run(alone).continuations[1].ids, all.continuations[7].ids);
  alone.sampling.seed = 5;
  EXPECT_NE(narrow.Run(alone).continuations[1].ids, all.continuations[7].ids);
}

// Of a prompt each piece that is computed at once, of samples that share one none.
TEST(GeneratorTest, EveryPieceOfAPromptIsTold) {
  model::GptConfig config = Config();
  config.seq = config.max_positions = 300;
  Rig rig(3, config);
  ASSERT_EQ(rig.model->max_rows(), 128);
  const std::vector<int32_t> long_one(260, 7);
  std::string calls;
  GenerateHooks hooks;
  hooks.interrupted = [&] {
    calls += '?';
    return false;
  };
  hooks.on_piece = [&] { calls += 'p'; };
  rig.Run({.prompts = {long_one, {1}}, .tokens = 1}, hooks);
  EXPECT_EQ(calls, "?ppp?p");
  calls.clear();
  rig.Run({.prompts = {{1, 2}}, .samples = 3, .tokens = 1}, hooks);
  EXPECT_EQ(calls, "?p??");
}

TEST(GeneratorTest, EndsForEachReason) {
  Rig rig(1);
  GenerateRequest request = {.prompts = {{72, 105}}, .tokens = 100};
  const Continuation whole = rig.Run(request).continuations[0];
  // The prompt, and one token behind the last position.
  ASSERT_EQ(whole.finish, Finish::kPositions);
  EXPECT_EQ(whole.ids.size(), 39U);
  request.tokens = 5;
  const Continuation five = rig.Run(request).continuations[0];
  EXPECT_EQ(five.finish, Finish::kTokens);
  EXPECT_EQ(five.ids.size(), 5U);
  request.tokens = 0;
  EXPECT_TRUE(rig.Run(request).continuations[0].ids.empty());
  request.tokens = 39;
  request.stops = {whole.text.substr(3, 4)};
  const Continuation stopped = rig.Run(request).continuations[0];
  EXPECT_EQ(stopped.finish, Finish::kStop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(request.stops[0])));
  int steps = 0;
  const Continuation interrupted =
      rig.Run({.prompts = {{72, 105}}, .tokens = 20}, {.interrupted = [&] { return ++steps > 4; }})
          .continuations[0];
  EXPECT_EQ(interrupted.finish, Finish::kInterrupted);
  EXPECT_EQ(interrupted.ids, std::vector<int32_t>(whole.ids.begin(), whole.ids.begin() + 4));
  for (const Finish f : {Finish::kTokens, Finish::kEod, Finish::kStop, Finish::kPositions})
    EXPECT_NE(Name(f), Name(Finish::kInterrupted));
}

// The head's row of the end-of-document token wins.
TEST(GeneratorTest, EndsWithTheDocument) {
  Rig rig(1);
  for (int64_t i = 0; i < 32; ++i) {
    const auto gain = rig.model->weights().Weight("final_norm.weight");
    gain.Data<double>()[i] = 0;
    rig.model->weights().Weight("final_norm.bias").Data<double>()[i] = 1;
    rig.model->weights().Weight("embedding.word.weight").Data<double>()[256 * 32 + i] = 3;
  }
  const Continuation one = rig.Run({.prompts = {{72}}, .tokens = 9}).continuations[0];
  EXPECT_EQ(one.finish, Finish::kEod);
  EXPECT_EQ(one.ids, std::vector<int32_t>{256});
  EXPECT_EQ(one.text, "");
}

TEST(GeneratorTest, TextComesInPiecesThatMakeIt) {
  Rig rig(2);
  std::vector<std::string> texts(9);
  std::vector<int> ends(9);
  const GenerateReport report =
      rig.Run(Sampled(),
              {.on_text = [&](int64_t prompt, int64_t sample, std::string_view text, bool ended) {
                texts[static_cast<size_t>(prompt * 3 + sample)] += text;
                ends[static_cast<size_t>(prompt * 3 + sample)] += ended ? 1 : 0;
              }});
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(texts[i], report.continuations[i].text);
    EXPECT_EQ(ends[i], 1);
  }
}

// Of generated tokens and of the same tokens as a prompt.
TEST(GeneratorTest, LogProbabilitiesAreThoseOfScoring) {
  Rig rig(2);
  GenerateRequest request = Sampled();
  request.log_probabilities = true;
  const Continuation made = rig.Run(request).continuations[7];
  std::vector<int32_t> ids = request.prompts[2];
  ids.insert(ids.end(), made.ids.begin(), made.ids.end());
  const Continuation scored =
      rig.Run({.prompts = {ids}, .tokens = 0, .log_probabilities = true}).continuations[0];
  ASSERT_EQ(made.log_probabilities.size(), ids.size() - 1);
  ASSERT_EQ(scored.log_probabilities.size(), ids.size() - 1);
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    EXPECT_NEAR(made.log_probabilities[i], scored.log_probabilities[i], 1e-11) << i;
}

TEST(GeneratorTest, RepetitionIsPenalized) {
  Rig rig(1);
  GenerateRequest request = {.prompts = {{72, 105}}, .tokens = 30};
  request.sampling.repetition_penalty = 100;
  const std::vector<int32_t> ids = rig.Run(request).continuations[0].ids;
  std::vector<int32_t> once = ids;
  std::sort(once.begin(), once.end());
  EXPECT_EQ(std::unique(once.begin(), once.end()), once.end());
}

// A vocabulary that is larger than the tokenizer's, as padding for a later one makes it.
TEST(GeneratorTest, OnlyTokensWithATextAreChosen) {
  model::GptConfig config = Config();
  config.vocab = config.padded_vocab = 600;
  Rig rig(1, config);
  GenerateRequest request = Sampled();
  request.sampling = {.temperature = 3, .seed = 1};
  for (const Continuation& one : rig.Run(request).continuations)
    for (const int32_t id : one.ids) EXPECT_LT(id, 257);
}

// Bytes, of which the even ones have no token.
class WithHoles final : public data::Tokenizer {
 public:
  std::string_view name() const override { return "holes"; }
  int64_t vocab_size() const override { return 257; }
  int32_t eod() const override { return data::kNoEod; }
  Status Encode(std::string_view, std::vector<int32_t>*) const override { return OkStatus(); }
  StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids)
      if (id % 2 == 0) return base::InvalidArgument("token id {} has no token", id);
    return std::string(ids.size(), '.');
  }
};

TEST(GeneratorTest, IdsWithoutATokenAreNeverChosen) {
  Rig rig(1);
  rig.tokenizer = std::make_unique<WithHoles>();
  GenerateRequest request = {.prompts = {{7}}, .samples = 4, .tokens = 30};
  request.sampling = {.temperature = 3, .seed = 1};
  for (const Continuation& one : rig.Run(request).continuations) {
    EXPECT_EQ(one.ids.size(), 30U);
    for (const int32_t id : one.ids) EXPECT_EQ(id % 2, 1);
  }
}

TEST(GeneratorTest, WeightsThatAreNoNumbersAreAnError) {
  Rig rig(1);
  for (const params::ParamId id : rig.rig.Ids()) {
    const kernels::Tensor weight = rig.model->weights().Weight(rig.rig.NameOf(id));
    std::fill_n(weight.Data<double>(), weight.NumElements(), std::nan(""));
  }
  const auto report = Generate(rig.model.get(), *rig.tokenizer, kGreedy, {});
  EXPECT_TRUE(absl::IsFailedPrecondition(report.status())) << report.status();
}

TEST(GeneratorTest, PromptsAreChecked) {
  EXPECT_TRUE(CheckPrompts({.prompts = {{1, 2, 3}}}, 3, 4).ok());
  const Status longer = CheckPrompts({.prompts = {{1}, {1, 2, 3, 4}}}, 3, 5);
  EXPECT_EQ(base::Message(longer),
            "prompt 2 has 4 tokens, the model has 3 positions (model.max_positions): shorten it");
  EXPECT_EQ(base::Message(CheckPrompts({.prompts = {{9}}}, 3, 5)),
            "prompt 1 has token 9, outside the model's vocabulary of 5");
  EXPECT_FALSE(CheckPrompts({.prompts = {{}}}, 3, 5).ok());
}

// In fp32 sums in another order may turn two tokens that are next to equally likely: no others.
TEST(GeneratorTest, Fp32GreedyIsThatWithoutTheCache) {
  model::GptConfig config = Config();
  config.dtype = kernels::DType::kF32;
  Rig rig(8, config);
  GenerateRequest request = {.tokens = 30};
  for (int32_t p = 0; p < 12; ++p) {
    request.prompts.emplace_back();
    for (int32_t i = 0; i < 1 + p % 9; ++i)
      request.prompts.back().push_back((37 * p + 101 * i * i) % 257);
  }
  int different = 0, compared = 0;
  for (const Continuation& one : rig.Run(request).continuations) {
    std::vector<int32_t> ids = request.prompts[static_cast<size_t>(one.prompt)];
    for (const int32_t chosen : one.ids) {
      std::vector<Row> rows;
      for (const int32_t id : ids) rows.push_back({id, 0, static_cast<int32_t>(rows.size())});
      rig.model->Forward(rows);
      const auto logits =
          RowOf(rig.model->Logits(std::vector<int>{static_cast<int>(ids.size()) - 1}), 0, 257);
      const auto largest = std::max_element(logits.begin(), logits.end());
      ++compared;
      if (chosen != largest - logits.begin()) {
        ++different;
        EXPECT_LT(*largest - logits[static_cast<size_t>(chosen)], 1e-4) << "prompt " << one.prompt;
        break;  // what follows is another text
      }
      ids.push_back(chosen);
    }
  }
  EXPECT_GT(compared, 60);
  EXPECT_LE(different, 1);
  RecordProperty("different", different);
}

}  // namespace
}  // namespace mt::decode
