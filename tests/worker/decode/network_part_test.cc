// Ranks that decode together, as threads: each has a part of a network's weights as training stores
// them. The logits are those of one rank that has them all, and the same bits on every rank.
#include "worker/decode/network_part.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/decode/decode_rig.h"
#include "tests/worker/decode/ranks_rig.h"
#include "tests/worker/model/model_rig.h"
#include "worker/data/tokenizer/plain_tokenizers.h"
#include "worker/decode/generator.h"

namespace mt::decode {
namespace {

using kernels::DType;
using model::GptConfig;

// The logits of `tokens` as they are read: a prompt of four, then one by one beside another
// sequence.
std::vector<std::vector<double>> Logits(DecodeModel* model, const std::vector<int32_t>& tokens) {
  std::vector<std::vector<double>> logits;
  const int64_t vocab = model->config().vocab;
  std::vector<Row> prompt;
  for (int32_t i = 0; i < 4; ++i) prompt.push_back({tokens[static_cast<size_t>(i)], 1, i});
  model->Forward(prompt);
  const kernels::Tensor two = model->Logits(std::vector<int>{3, 1});
  for (const int64_t row : {0, 1}) logits.push_back(RowOf(two, row, vocab));
  model->CopySequence(1, 2, 4);
  for (int32_t i = 4; i < std::ssize(tokens); ++i) {
    const auto at = static_cast<size_t>(i);
    const kernels::Tensor step =
        model->Step(std::vector<Row>{{tokens[at - 4], 0, i - 4}, {tokens[at], 2, i}});
    for (const int64_t row : {0, 1}) logits.push_back(RowOf(step, row, vocab));
  }
  return logits;
}

// Within `tolerance` of a row's largest logit.
void ExpectNear(const std::vector<std::vector<double>>& got,
                const std::vector<std::vector<double>>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t row = 0; row < want.size(); ++row) {
    double largest = 0;
    for (const double logit : want[row]) largest = std::max(largest, std::abs(logit));
    ASSERT_EQ(got[row].size(), want[row].size());
    for (size_t v = 0; v < want[row].size(); ++v)
      ASSERT_NEAR(got[row][v], want[row][v], tolerance * largest)
          << "row " << row << ", token " << v;
  }
}

class RanksTest : public testing::TestWithParam<size_t> {};

// Every variant whose heads two ranks can share.
TEST_P(RanksTest, HaveTheLogitsOfOne) {
  const Layout& layout = Layouts()[GetParam()];
  for (const Variant& variant : Variants()) {
    const GptConfig config = ConfigOf(variant);
    if (config.heads % layout.tp != 0 || config.kv_heads % layout.tp != 0) continue;
    SCOPED_TRACE(variant.name);
    model::ModelRig whole(config);
    MakeWeightsUneven(&whole);
    const std::vector<int32_t> tokens = SomeTokens(config, 5);
    const auto want = Logits(MakeModel(&whole, config, DType::kF64, 3).get(), tokens);
    std::vector<std::vector<std::vector<double>>> got(static_cast<size_t>(layout.ranks()));
    RunRanks(whole, config, layout, [&](const Rank& rank) {
      got[static_cast<size_t>(rank.number)] = Logits(rank.model, tokens);
      EXPECT_TRUE(rank.model->status().ok()) << rank.model->status();
    });
    ASSERT_NO_FATAL_FAILURE(ExpectNear(got.front(), want, 1e-12));
    for (const auto& logits : got) EXPECT_EQ(logits, got.front());
  }
}

// The sums of ranks are rounded to 8 bits, and so are logits, which travel in 32. A rank by itself
// is held to the same bound against fp64 (gpu_decode_test.cc).
TEST_P(RanksTest, HaveTheLogitsOfOneInBf16) {
  const Layout& layout = Layouts()[GetParam()];
  for (const Variant& variant : Variants()) {
    if (variant.name != "gpt2" && variant.name != "llama" && variant.name != "parallel") continue;
    SCOPED_TRACE(variant.name);
    GptConfig config = ConfigOf(variant);
    model::ModelRig whole(config);
    MakeWeightsUneven(&whole);
    const std::vector<int32_t> tokens = SomeTokens(config, 5);
    const auto want = Logits(MakeModel(&whole, config, DType::kBf16, 3).get(), tokens);
    config.dtype = DType::kBf16;
    std::vector<std::vector<std::vector<double>>> got(static_cast<size_t>(layout.ranks()));
    RunRanks(whole, config, layout, [&](const Rank& rank) {
      got[static_cast<size_t>(rank.number)] = Logits(rank.model, tokens);
      EXPECT_TRUE(rank.model->status().ok()) << rank.model->status();
    });
    ASSERT_NO_FATAL_FAILURE(ExpectNear(got.front(), want, 0.08));
    for (const auto& logits : got) EXPECT_EQ(logits, got.front());
    for (const std::vector<double>& row : got.front()) {
      for (const double logit : row) {
        const auto bits = std::bit_cast<uint32_t>(static_cast<float>(logit));
        ASSERT_EQ(bits & 0xFFFFU, 0U) << logit << " is no bf16";
      }
    }
  }
}

// Greedy and drawn, each token for token.
TEST_P(RanksTest, WriteTheTextOfOne) {
  const Layout& layout = Layouts()[GetParam()];
  const GptConfig config = Base();
  model::ModelRig whole(config);
  MakeWeightsUneven(&whole);
  const auto tokenizer = data::MakeNullTokenizer(config.vocab);
  for (const double temperature : {0.0, 1.3}) {
    const GenerateRequest request{.prompts = {{1, 2, 3}, {7}},
                                  .samples = temperature > 0 ? 2 : 1,
                                  .tokens = 7,
                                  .sampling = {.temperature = temperature, .seed = 3}};
    const auto ids = [&](DecodeModel* model) {
      std::vector<std::vector<int32_t>> all;
      const auto report = Generate(model, *tokenizer, request);
      if (!report.ok()) return all;
      for (const Continuation& one : report->continuations) all.push_back(one.ids);
      return all;
    };
    const auto want = ids(MakeModel(&whole, config, DType::kF64, 3).get());
    ASSERT_FALSE(want.empty());
    std::vector<std::vector<std::vector<int32_t>>> got(static_cast<size_t>(layout.ranks()));
    RunRanks(whole, config, layout,
             [&](const Rank& rank) { got[static_cast<size_t>(rank.number)] = ids(rank.model); });
    for (const auto& texts : got) EXPECT_EQ(texts, want) << "temperature " << temperature;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, RanksTest, testing::Range<size_t>(0, Layouts().size()),
                         [](const auto& test) { return Layouts()[test.param].name; });

// Nobody goes on with what a lost rank did not send.
TEST(RanksFailureTest, TheLossOfOneEndsTheTextOfAll) {
  const GptConfig config = Base();
  const model::ModelRig whole(config);
  const auto tokenizer = data::MakeNullTokenizer(config.vocab);
  RunRanks(whole, config, {"tp2_pp2", 2, 2, 1}, [&](const Rank& rank) {
    if (rank.number == 3) rank.ranks->Abort("lost");
    const auto report = Generate(rank.model, *tokenizer, {.prompts = {{1, 2}}, .tokens = 6});
    EXPECT_FALSE(report.ok());
    EXPECT_FALSE(rank.model->status().ok());
  });
}

TEST(JoinLogitsTest, PutsEachRanksTokensSideBySide) {
  // Three ranks with three tokens each, two rows; the last token is padding.
  std::vector<float> all, rows(16, -1);
  for (int i = 0; i < 18; ++i) all.push_back(static_cast<float>(i));
  JoinLogits({all.data(), DType::kF32, {6, 3}}, {rows.data(), DType::kF32, {2, 8}});
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 2, 6, 7, 8, 12, 13, 3, 4, 5, 9, 10, 11, 15, 16}));
}

}  // namespace
}  // namespace mt::decode
