// Decoding with a cache against training's forward of the same weights, for every variant: the log
// probability of every token of the vocabulary behind every prefix.
#include "worker/decode/decode_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/worker/model/model_rig.h"
#include "worker/decode/sampler.h"

namespace mt::decode {
namespace {

using kernels::ActKind;
using kernels::NormKind;
using model::GptConfig;
using model::PositionKind;

constexpr int64_t kPositions = 11;

GptConfig Base() {
  return {.layers = 2,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 6,
          .ffn = 40,
          .vocab = 13,
          .padded_vocab = 16,
          .seq = kPositions,
          .micro_batch = 1,
          .max_positions = kPositions + 2,
          .init_std = 0.3,
          .dtype = kernels::DType::kF64};
}

struct Variant {
  std::string name;
  std::function<void(GptConfig*)> change;
};

void Rope(GptConfig* c, double percent = 1) {
  c->position = PositionKind::kRope;
  c->rope = {.head_dim = c->head_dim, .percent = percent, .base = 100};
}

void Llama(GptConfig* c) {
  Rope(c);
  c->norm = NormKind::kRmsNorm;
  c->activation = ActKind::kSwiglu;
  c->bias = c->qkv_bias = c->tie_embeddings = false;
  c->kv_heads = 2;
}

const std::vector<Variant>& Variants() {
  static const std::vector<Variant> all = {
      {"gpt2", [](GptConfig*) {}},
      {"one_layer", [](GptConfig* c) { c->layers = 1; }},
      {"five_layers", [](GptConfig* c) { c->layers = 5; }},
      {"wide_heads", [](GptConfig* c) { c->head_dim = 40; }},
      {"no_positions", [](GptConfig* c) { c->position = PositionKind::kNone; }},
      {"rope", [](GptConfig* c) { Rope(c); }},
      {"rope_part", [](GptConfig* c) { Rope(c, 0.7); }},
      {"rope_linear",
       [](GptConfig* c) {
         Rope(c);
         c->rope.scaling = {.kind = kernels::RopeScalingKind::kLinear, .factor = 3};
       }},
      {"rope_llama3",
       [](GptConfig* c) {
         Rope(c);
         c->rope.scaling = {
             .kind = kernels::RopeScalingKind::kLlama3, .factor = 8, .original_positions = 16};
       }},
      {"alibi", [](GptConfig* c) { c->position = PositionKind::kAlibi; }},
      {"alibi_odd_heads",
       [](GptConfig* c) {
         c->position = PositionKind::kAlibi;
         c->heads = c->kv_heads = 3;
       }},
      {"alibi_window",
       [](GptConfig* c) {
         c->position = PositionKind::kAlibi;
         c->window = 4;
       }},
      {"window_1", [](GptConfig* c) { c->window = 1; }},
      {"window_5", [](GptConfig* c) { c->window = 5; }},
      {"window_whole", [](GptConfig* c) { c->window = kPositions; }},
      {"groups", [](GptConfig* c) { c->kv_heads = 2; }},
      {"one_group", [](GptConfig* c) { c->kv_heads = 1; }},
      {"qk_norm", [](GptConfig* c) { c->qk_norm = true; }},
      {"qk_norm_rope_groups",
       [](GptConfig* c) {
         Rope(c);
         c->qk_norm = true;
         c->kv_heads = 2;
       }},
      {"rms_norm", [](GptConfig* c) { c->norm = NormKind::kRmsNorm; }},
      {"one_plus", [](GptConfig* c) { c->norm_one_plus = c->qk_norm = true; }},
      {"eps", [](GptConfig* c) { c->norm_eps = 0.1; }},
      {"swiglu", [](GptConfig* c) { c->activation = ActKind::kSwiglu; }},
      {"geglu", [](GptConfig* c) { c->activation = ActKind::kGeglu; }},
      {"relu2", [](GptConfig* c) { c->activation = ActKind::kRelu2; }},
      {"gelu_erf", [](GptConfig* c) { c->activation = ActKind::kGeluErf; }},
      {"no_bias", [](GptConfig* c) { c->bias = c->qkv_bias = false; }},
      {"qkv_bias_only", [](GptConfig* c) { c->bias = false; }},
      {"untied", [](GptConfig* c) { c->tie_embeddings = false; }},
      {"parallel", [](GptConfig* c) { c->parallel_residual = true; }},
      {"parallel_rope_window",
       [](GptConfig* c) {
         Rope(c, 0.5);
         c->parallel_residual = true;
         c->bias = false;
         c->window = 3;
       }},
      {"llama", Llama},
      {"llama_window",
       [](GptConfig* c) {
         Llama(c);
         c->window = 6;
       }},
      {"padded_heads", [](GptConfig* c) { c->stored_head_dim = 16; }},
      {"dropouts_of_training",
       [](GptConfig* c) { c->hidden_dropout = c->attention_dropout = 0.2; }},
  };
  return all;
}

GptConfig ConfigOf(const Variant& variant) {
  GptConfig config = Base();
  variant.change(&config);
  return config;
}

std::unique_ptr<DecodeModel> MakeModel(model::ModelRig* rig, const GptConfig& trained,
                                       kernels::DType dtype, int64_t sequences) {
  static const auto stream = rig->backend().device().CreateStream(kernels::StreamPriority::kLow);
  auto made = DecodeModel::Make({.config = DecodeConfig(trained, dtype, trained.seq),
                                 .sequences = sequences,
                                 .memory_limit_bytes = int64_t{1} << 32,
                                 .backend = &rig->backend(),
                                 .stream = stream.get()});
  CHECK(made.ok()) << made.status().ToString();
  const params::Registry& registry = (*made)->weights().registry();
  CHECK_EQ(registry.size(), rig->registry().size());
  for (const params::ParamId id : rig->Ids()) {
    const params::ParamSpec& spec = rig->registry()[id];
    const std::vector<double> stored = rig->Weight(id);
    std::vector<double> held(static_cast<size_t>(spec.Held().NumElements()));
    // From runs with padding between them to a whole.
    const base::Runs places = spec.Places();
    for (size_t i = 0; i < held.size(); ++i)
      held[i] = stored[static_cast<size_t>(places.At(static_cast<int64_t>(i)))];
    const kernels::Tensor to = (*made)->weights().Weight(spec.name);
    CHECK(to.shape == spec.shape);
    rig->backend().vector().Cast(*stream, to, {held.data(), kernels::DType::kF64, to.shape});
  }
  return *std::move(made);
}

// Gains and biases that are not their initial 0 and 1.
void MakeWeightsUneven(model::ModelRig* rig) {
  uint32_t state = 12345;
  for (const params::ParamId id : rig->Ids()) {
    const params::ParamSpec& spec = rig->registry()[id];
    if (spec.shape.rank() == 2) continue;
    std::vector<double> values = rig->Weight(id);
    const base::Runs places = spec.Places();
    for (int64_t i = 0; i < spec.Held().NumElements(); ++i) {
      state = state * 1664525U + 1013904223U;
      values[static_cast<size_t>(places.At(i))] += static_cast<double>(state >> 8) * 0x1p-25 - 0.25;
    }
    rig->SetWeight(id, values);
  }
}

std::vector<int32_t> SomeTokens(const GptConfig& config, uint32_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < config.seq; ++i) {
    seed = seed * 1664525U + 1013904223U;
    tokens.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(config.vocab)));
  }
  return tokens;
}

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
