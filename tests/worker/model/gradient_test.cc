// The complete backward against finite differences of the complete forward, in fp64, with dropout.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/model/model_rig.h"

namespace mt::model {
namespace {

GptConfig DropoutConfig() {
  GptConfig config = SmallConfig();
  config.hidden_dropout = 0.2;
  config.attention_dropout = 0.15;
  config.init_std = 0.3;  // far from linear
  config.head_chunk_tokens = 16;
  return config;
}

std::vector<double> RandomDirection(size_t size, std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  std::vector<double> direction(size);
  for (double& x : direction) x = normal(*random);
  const double norm = Norm(direction);
  for (double& x : direction) x /= norm;
  return direction;
}

// Loss of the training forward, dropout included, with the parameter moved along the direction.
double LossAt(ModelRig* rig, const data::Microbatch& batch, params::ParamId id,
              const std::vector<double>& direction, double step) {
  const std::vector<double> kept = rig->Weight(id);
  std::vector<double> moved = kept;
  for (size_t i = 0; i < direction.size(); ++i) moved[i] += step * direction[i];
  rig->SetWeight(id, moved);
  rig->Run(batch);
  rig->SetWeight(id, kept);
  return rig->TakeSums().loss;
}

// Five-point derivative: error O(step^4).
double Derivative(ModelRig* rig, const data::Microbatch& batch, params::ParamId id,
                  const std::vector<double>& direction) {
  constexpr double step_size = 1e-3;
  const auto loss = [&](double steps) {
    return LossAt(rig, batch, id, direction, steps * step_size);
  };
  return (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * step_size);
}

// Gains and biases away from one and zero, so that nothing hides behind them.
void DisturbVectors(ModelRig* rig, std::mt19937_64* random) {
  for (const params::ParamId id : rig->Ids()) {
    if (rig->registry()[id].shape.rank() != 1) continue;
    std::vector<double> values = rig->Weight(id);
    const std::vector<double> noise = RandomDirection(values.size(), random);
    for (size_t i = 0; i < values.size(); ++i) values[i] += noise[i];
    rig->SetWeight(id, values);
  }
}

// Variants whose backwards differ; together with the others' they have every kind of block. Squared
// ReLU is missing: its second derivative jumps, so differences do not converge as fast.
struct Variant {
  const char* name;
  GptConfig config;
};

Variant Gpt2() { return {"gpt2", DropoutConfig()}; }

Variant Llama() {
  GptConfig config = DropoutConfig();
  config.heads = 4;
  config.kv_heads = 2;
  config.position = PositionKind::kRope;
  config.rope = {.head_dim = config.head_dim};
  config.norm = kernels::NormKind::kRmsNorm;
  config.activation = kernels::ActKind::kSwiglu;
  config.bias = config.qkv_bias = config.tie_embeddings = false;
  return {"llama", config};
}

Variant Alibi() {
  GptConfig config = DropoutConfig();
  config.kv_heads = 1;
  config.position = PositionKind::kAlibi;
  config.norm_one_plus = true;
  config.activation = kernels::ActKind::kGeglu;
  config.qkv_bias = false;
  return {"alibi_mqa_geglu", config};
}

Variant Everything() {
  GptConfig config = Llama().config;
  config.rope.percent = 0.5;
  config.rope.scaling = {
      .kind = kernels::RopeScalingKind::kLlama3, .factor = 4, .original_positions = 16};
  config.norm_one_plus = config.qk_norm = config.parallel_residual = config.qkv_bias = true;
  config.window = 7;
  return {"qk_norm_window_parallel", config};
}

Variant ParallelWithBiases() {
  GptConfig config = DropoutConfig();
  config.parallel_residual = true;
  config.position = PositionKind::kNone;
  config.tie_embeddings = false;
  return {"parallel_with_biases", config};
}

Variant Restarting(Variant variant, const char* name) {
  variant.name = name;
  variant.config.reset_positions = true;
  return variant;
}

class VariantGradient : public ::testing::TestWithParam<Variant> {};

TEST_P(VariantGradient, EveryParameterAgreesWithFiniteDifferences) {
  const GptConfig& config = GetParam().config;
  ModelRig rig(config);
  std::mt19937_64 random(11);
  DisturbVectors(&rig, &random);
  // Sample numbers beyond 32 bits use every word of the dropout counters.
  const data::Microbatch batch = RandomBatch(config, 3, (int64_t{1} << 33) + 5);
  rig.Run(batch);
  rig.TakeSums();
  std::vector<std::vector<double>> gradients;
  double largest = 0;
  for (const params::ParamId id : rig.Ids()) {
    gradients.push_back(rig.Grad(id));
    largest = std::max(largest, Norm(gradients.back()));
  }
  const double tokens = static_cast<double>(config.tokens());
  for (const params::ParamId id : rig.Ids()) {
    const std::vector<double>& gradient = gradients[static_cast<size_t>(id)];
    // Only logical elements move: padded rows stay zero.
    std::vector<double> direction =
        RandomDirection(static_cast<size_t>(rig.registry()[id].shape.NumElements()), &random);
    direction.resize(gradient.size(), 0.0);
    const double want = Derivative(&rig, batch, id, direction) / tokens;
    EXPECT_NEAR(Dot(gradient, direction), want, 1e-8 * Norm(gradient) + 1e-11 * largest)
        << rig.NameOf(id) << ": norm " << Norm(gradient);
  }
}

INSTANTIATE_TEST_SUITE_P(All, VariantGradient,
                         ::testing::Values(Gpt2(), Llama(), Alibi(), Everything(),
                                           ParallelWithBiases(),
                                           Restarting(Gpt2(), "gpt2_restarting"),
                                           Restarting(Everything(), "qk_norm_restarting")),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Gradient, TwoMicrobatchesAddUpToOneBigBatch) {
  GptConfig config = DropoutConfig();
  config.micro_batch = 4;
  ModelRig whole(config);
  const data::Microbatch batch = RandomBatch(config, 5, 1000);
  whole.Run(batch);
  const Sums want = whole.TakeSums();

  config.micro_batch = 2;
  ModelRig parts(config);
  parts.set_seed(1.0 / (2.0 * static_cast<double>(config.tokens())));
  // Garbage of a step before must not survive the overwriting microbatch.
  parts.Run(Samples(batch, 1, 2));
  parts.TakeSums();
  parts.Run(Samples(batch, 0, 2), kernels::GradMode::kOverwrite, /*last=*/false);
  parts.Run(Samples(batch, 2, 2), kernels::GradMode::kAdd);
  const Sums got = parts.TakeSums();
  EXPECT_NEAR(got.loss, want.loss, 1e-14 * want.loss);
  EXPECT_EQ(got.weight, want.weight);
  for (const params::ParamId id : whole.Ids()) {
    const std::vector<double> gradient = whole.Grad(id);
    EXPECT_LE(Distance(parts.Grad(id), gradient), 1e-13 * Norm(gradient) + 1e-15)
        << whole.NameOf(id);
  }
}

TEST(Gradient, ScalesWithTheLossScale) {
  GptConfig config = DropoutConfig();
  ModelRig plain(config);
  ModelRig scaled(config);
  scaled.scalars().loss_scale = 1024;
  const data::Microbatch batch = RandomBatch(config, 6, 0);
  plain.Run(batch);
  scaled.Run(batch);
  EXPECT_EQ(plain.TakeSums().loss, scaled.TakeSums().loss);
  for (const params::ParamId id : plain.Ids()) {
    std::vector<double> want = plain.Grad(id);
    for (double& x : want) x *= 1024;
    // A power of two scales every intermediate result exactly.
    EXPECT_EQ(scaled.Grad(id), want) << plain.NameOf(id);
  }
}

}  // namespace
}  // namespace mt::model
