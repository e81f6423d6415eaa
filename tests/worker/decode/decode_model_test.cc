// Decoding with a cache against training's forward of the same weights, for every variant: the log
// probability of every token of the vocabulary behind every prefix.
#include "worker/decode/decode_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/worker/decode/decode_rig.h"
#include "tests/worker/model/model_rig.h"
#include "worker/decode/sampler.h"

namespace mt::decode {
namespace {

using model::GptConfig;

// -log p(token | prefix) for all tokens at every position, by training's evaluation.
std::vector<std::vector<double>> TrainedLosses(model::ModelRig* rig, const GptConfig& config,
                                               const std::vector<int32_t>& tokens) {
  std::vector<std::vector<double>> losses;
  for (int64_t position = 0; position < config.seq; ++position) {
    losses.emplace_back();
    for (int32_t label = 0; label < config.vocab; ++label) {
      data::Microbatch batch;
      batch.s = config.seq;
      batch.b = 1;
      batch.tokens = tokens;
      // What comes behind the position must not be read.
      for (int64_t i = position + 1; i < config.seq; ++i) batch.tokens[static_cast<size_t>(i)] = 0;
      batch.labels.assign(tokens.size(), label);
      batch.weights.assign(tokens.size(), 0.0F);
      batch.weights[static_cast<size_t>(position)] = 1.0F;
      batch.weight_sum = 1;
      batch.samples = {0};
      data::SortTokens(&batch);
      rig->Evaluate(batch);
      losses.back().push_back(rig->TakeSums().loss);
    }
  }
  return losses;
}

void ExpectLosses(const kernels::Tensor& logits, int64_t row, const std::vector<double>& losses,
                  double tolerance) {
  const std::vector<double> values = RowOf(logits, row, std::ssize(losses));
  for (int32_t token = 0; token < std::ssize(losses); ++token) {
    const double want = -losses[static_cast<size_t>(token)];
    ASSERT_NEAR(LogProbability(values, token), want, tolerance * std::max(1.0, std::abs(want)))
        << "token " << token;
  }
}

class DecodeVariantTest : public testing::TestWithParam<size_t> {
 protected:
  const Variant& variant() const { return Variants()[GetParam()]; }
};

// Token by token, and with the first ones as a prompt; another sequence is computed beside it.
TEST_P(DecodeVariantTest, EveryPrefixHasTrainingsLogits) {
  const GptConfig config = ConfigOf(variant());
  model::ModelRig rig(config);
  MakeWeightsUneven(&rig);
  const std::vector<int32_t> tokens = SomeTokens(config, 1), other = SomeTokens(config, 2);
  const auto losses = TrainedLosses(&rig, config, tokens);
  const auto model = MakeModel(&rig, config, kernels::DType::kF64, 2);
  for (int32_t i = 0; i < config.seq; ++i) {
    const auto at = static_cast<size_t>(i);
    model->Forward(std::vector<Row>{{other[at], 0, i}, {tokens[at], 1, i}});
    ASSERT_NO_FATAL_FAILURE(ExpectLosses(model->Logits(std::vector<int>{1}), 0, losses[at], 1e-12))
        << variant().name << " at position " << i;
  }
  std::vector<Row> prompt;
  for (int32_t i = 0; i < 10; ++i) prompt.push_back({tokens[static_cast<size_t>(i)], 0, i});
  model->Forward(prompt);
  const kernels::Tensor logits = model->Logits(std::vector<int>{9, 2});
  ExpectLosses(logits, 0, losses[9], 1e-12);
  ExpectLosses(logits, 1, losses[2], 1e-12);
  // The cache of a prompt is that of its tokens.
  model->CopySequence(0, 1, 10);
  model->Forward(std::vector<Row>{{tokens[10], 1, 10}});
  ExpectLosses(model->Logits(std::vector<int>{0}), 0, losses[10], 1e-12);
}

TEST_P(DecodeVariantTest, Fp32FollowsFp64) {
  const GptConfig config = ConfigOf(variant());
  model::ModelRig rig(config);
  MakeWeightsUneven(&rig);
  const std::vector<int32_t> tokens = SomeTokens(config, 3);
  const auto exact = MakeModel(&rig, config, kernels::DType::kF64, 1);
  const auto single = MakeModel(&rig, config, kernels::DType::kF32, 1);
  for (int32_t i = 0; i < config.seq; ++i) {
    const std::vector<Row> row = {{tokens[static_cast<size_t>(i)], 0, i}};
    exact->Forward(row);
    single->Forward(row);
    const std::vector<int> first = {0};
    const std::vector<double> want = RowOf(exact->Logits(first), 0, config.vocab);
    const std::vector<double> got = RowOf(single->Logits(first), 0, config.vocab);
    double largest = 0;
    for (const double logit : want) largest = std::max(largest, std::abs(logit));
    for (size_t v = 0; v < want.size(); ++v) ASSERT_NEAR(got[v], want[v], 2e-5 * largest);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecodeVariantTest, testing::Range<size_t>(0, Variants().size()),
                         [](const auto& test) { return Variants()[test.param].name; });

// The bits of a sequence, with none, one and seven others beside it.
TEST(DecodeModelTest, ASequenceDoesNotDependOnOthers) {
  const GptConfig config = Base();
  model::ModelRig rig(config);
  const auto model = MakeModel(&rig, config, kernels::DType::kF32, 8);
  std::vector<std::vector<double>> first;
  for (const int32_t beside : {0, 1, 7}) {
    for (int32_t i = 0; i < 6; ++i) {
      std::vector<Row> rows;
      for (int32_t s = beside; s >= 0; --s) rows.push_back({(s * 5 + i * 3) % 13, s, i});
      model->Forward(rows);
      const auto logits = RowOf(model->Logits(std::vector<int>{beside}), 0, config.vocab);
      if (beside == 0) first.push_back(logits);
      EXPECT_EQ(logits, first[static_cast<size_t>(i)]) << beside << " beside, position " << i;
    }
  }
}

TEST(DecodeModelTest, SaysWhatDoesNotFitMemory) {
  model::ModelRig rig(Base());
  const auto stream = rig.backend().device().CreateStream(kernels::StreamPriority::kLow);
  const auto made = DecodeModel::Make({.config = DecodeConfig(Base(), kernels::DType::kF32, 8),
                                       .memory_limit_bytes = 1000,
                                       .backend = &rig.backend(),
                                       .stream = stream.get()});
  EXPECT_TRUE(absl::IsResourceExhausted(made.status())) << made.status();
}

}  // namespace
}  // namespace mt::decode
