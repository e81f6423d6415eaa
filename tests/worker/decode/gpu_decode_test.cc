// Decoding on a GPU against the CPU's: logits of every variant, steps that are recorded, text of
// greedy decoding. Skips, saying why, where the module or a GPU is missing.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "kernels/cuda/module.h"
#include "tests/worker/decode/decode_rig.h"
#include "worker/decode/sampler.h"

namespace mt::decode {
namespace {

using kernels::DType;
using model::GptConfig;

const StatusOr<std::unique_ptr<kernels::Backend>>& Gpu() {
  static const auto backend =
      new StatusOr<std::unique_ptr<kernels::Backend>>(kernels::cuda::LoadCudaBackend({}));
  return *backend;
}

class GpuDecodeTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!Gpu().ok()) GTEST_SKIP() << base::Message(Gpu().status());
    stream_ = (*Gpu())->device().CreateStream(kernels::StreamPriority::kLow);
  }
  std::unique_ptr<kernels::Stream> stream_;
};

// Each logit within a share of the largest.
void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                const std::string& what) {
  double largest = 0;
  for (const double logit : want) largest = std::max(largest, std::abs(logit));
  for (size_t v = 0; v < want.size(); ++v)
    ASSERT_NEAR(got[v], want[v], tolerance * largest) << what << " token " << v;
}

// Token by token with another sequence beside it, the later steps recorded; as a prompt; and behind
// a copied cache.
TEST_P(GpuDecodeTest, LogitsAreTheCpus) {
  const Variant& variant = Variants()[GetParam()];
  const GptConfig config = ConfigOf(variant);
  model::ModelRig rig(config);
  MakeWeightsUneven(&rig);
  const std::vector<int32_t> tokens = SomeTokens(config, 1), other = SomeTokens(config, 2);
  const auto exact = MakeModel(&rig, config, DType::kF64, 2);
  // 16-bit weights and results of every op; the tests of those hold each to its own rounding.
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kF32, 2e-5}, {DType::kBf16, 0.08}, {DType::kF16, 0.01}}) {
    const auto model = MakeModel(&rig, config, dtype, 2, Gpu()->get(), stream_.get());
    const std::string what = variant.name + " in " + std::string(Name(dtype)) + " at ";
    std::vector<std::vector<double>> want;
    for (int32_t i = 0; i < config.seq; ++i) {
      const auto at = static_cast<size_t>(i);
      const std::vector<Row> rows = {{other[at], 0, i}, {tokens[at], 1, i}};
      want.push_back(RowOf(exact->Step(rows), 1, config.vocab));
      ExpectNear(RowOf(model->Step(rows), 1, config.vocab), want[at], tolerance,
                 what + std::to_string(i));
    }
    std::vector<Row> prompt;
    for (int32_t i = 0; i < 10; ++i) prompt.push_back({tokens[static_cast<size_t>(i)], 0, i});
    model->Forward(prompt);
    const kernels::Tensor logits = model->Logits(std::vector<int>{9, 2});
    ExpectNear(RowOf(logits, 0, config.vocab), want[9], tolerance, what + "9, a prompt");
    ExpectNear(RowOf(logits, 1, config.vocab), want[2], tolerance, what + "2, a prompt");
    model->CopySequence(0, 1, 10);
    model->Forward(std::vector<Row>{{tokens[10], 1, 10}});
    ExpectNear(RowOf(model->Logits(std::vector<int>{0}), 0, config.vocab), want[10], tolerance,
               what + "10, copied");
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuDecodeTest, testing::Range<size_t>(0, Variants().size()),
                         [](const auto& test) { return Variants()[test.param].name; });

class GpuDecodeStepTest : public GpuDecodeTest {};
INSTANTIATE_TEST_SUITE_P(One, GpuDecodeStepTest, testing::Values(size_t{0}));

// The bits of a sequence, with none, one and seven others beside it; with and without a recording.
TEST_P(GpuDecodeStepTest, ASequenceDoesNotDependOnOthers) {
  const GptConfig config = Base();
  model::ModelRig rig(config);
  const auto model = MakeModel(&rig, config, DType::kBf16, 8, Gpu()->get(), stream_.get());
  std::vector<std::vector<double>> first;
  for (const int32_t beside : {0, 1, 7}) {
    for (int32_t i = 0; i < 6; ++i) {
      std::vector<Row> rows;
      for (int32_t s = beside; s >= 0; --s) rows.push_back({(s * 5 + i * 3) % 13, s, i});
      const auto logits = RowOf(model->Step(rows), beside, config.vocab);
      if (beside == 0) first.push_back(logits);
      EXPECT_EQ(logits, first[static_cast<size_t>(i)]) << beside << " beside, position " << i;
    }
  }
}

// A prompt that training's attention computes, and what follows it, against the CPU's, which goes
// through the cache: 300 rows are padded to 384.
TEST_P(GpuDecodeTest, LongPromptsAreTheCpus) {
  const Variant& variant = Variants()[GetParam()];
  GptConfig config = Base();
  config.seq = config.max_positions = 310;
  variant.change(&config);
  model::ModelRig rig(config);
  MakeWeightsUneven(&rig);
  const std::vector<int32_t> tokens = SomeTokens(config, 4);
  constexpr int32_t kPrompt = 300;
  std::vector<Row> prompt;
  for (int32_t i = 0; i < kPrompt; ++i) prompt.push_back({tokens[static_cast<size_t>(i)], 0, i});
  const std::vector<Row> next = {{tokens[kPrompt], 0, kPrompt}};
  const auto exact = MakeModel(&rig, config, DType::kF64, 1);
  const auto model = MakeModel(&rig, config, DType::kF32, 1, Gpu()->get(), stream_.get(), 384);
  for (size_t begin = 0; begin < prompt.size(); begin += 100)
    exact->Forward(std::span(prompt).subspan(begin, 100));
  model->Forward(prompt);
  ExpectNear(RowOf(model->Logits(std::vector<int>{kPrompt - 1}), 0, config.vocab),
             RowOf(exact->Logits(std::vector<int>{99}), 0, config.vocab), 1e-4,
             variant.name + " behind the prompt");
  ExpectNear(RowOf(model->Step(next), 0, config.vocab), RowOf(exact->Step(next), 0, config.vocab),
             1e-4, variant.name + " one further");
}

// Greedy tokens in fp32 are the CPU's; where they part, the two likeliest were as good as equal.
TEST_P(GpuDecodeStepTest, GreedyTokensAreTheCpus) {
  GptConfig config = Base();
  config.seq = config.max_positions = 200;
  config.vocab = 97;
  config.padded_vocab = 112;
  model::ModelRig rig(config);
  MakeWeightsUneven(&rig);
  const auto exact = MakeModel(&rig, config, DType::kF32, 1);
  const auto model = MakeModel(&rig, config, DType::kF32, 1, Gpu()->get(), stream_.get());
  int32_t token = 5;
  int ties = 0;
  for (int32_t i = 0; i < config.seq; ++i) {
    const std::vector<Row> row = {{token, 0, i}};
    const std::vector<double> want = RowOf(exact->Step(row), 0, config.vocab);
    const std::vector<double> got = RowOf(model->Step(row), 0, config.vocab);
    const auto best = std::ranges::max_element(want) - want.begin();
    const auto best_got = std::ranges::max_element(got) - got.begin();
    if (best != best_got) {
      ++ties;
      EXPECT_LT(want[static_cast<size_t>(best)] - want[static_cast<size_t>(best_got)], 1e-4) << i;
    }
    token = static_cast<int32_t>(best);
  }
  EXPECT_LE(ties, 2);
}

}  // namespace
}  // namespace mt::decode
