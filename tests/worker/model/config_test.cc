// From a job file to the model's configuration.
#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/model/gpt_config.h"

namespace mt::model {
namespace {

GptConfig FromYaml(const char* text, const char* device = "placement.device=cpu") {
  megatrain::v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(text, {device}, {.cuda = true}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return ConfigFromJob(job);
}

TEST(GptConfig, PresetWithItsDerivedSizes) {
  const GptConfig config = FromYaml(R"(
name: a
model: {preset: gpt2-124m, hidden_dropout: 0.1, attention_dropout: 0.2}
data: {mock: true}
training: {micro_batch_size: 4, train_iters: 10, precision: fp64, seed: 77}
optimizer: {lr: 1e-3}
)");
  EXPECT_EQ(config.layers, 12);
  EXPECT_EQ(config.hidden, 768);
  EXPECT_EQ(config.heads, 12);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.ffn, 3072);
  EXPECT_EQ(config.vocab, 50257);
  EXPECT_EQ(config.padded_vocab, 50304);
  EXPECT_EQ(config.seq, 1024);
  EXPECT_EQ(config.max_positions, 1024);
  EXPECT_EQ(config.micro_batch, 4);
  EXPECT_EQ(config.hidden_dropout, 0.1);
  EXPECT_EQ(config.attention_dropout, 0.2);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.init_std, 0.02);
  EXPECT_EQ(config.output_init_std(), 0.02 / std::sqrt(24.0));
  EXPECT_EQ(config.dtype, kernels::DType::kF64);
  EXPECT_EQ(config.seed, 77);
}

TEST(GptConfig, HeadsArePaddedOnGpusAlone) {
  constexpr char kText[] = R"(
name: a
model: {layers: 3, hidden_size: 200, heads: 4, kv_heads: 2, head_dim: 100, seq_length: 32,
        vocab_size: 300, position: rope}
data: {mock: true}
training: {micro_batch_size: 2, train_iters: 10, precision: bf16}
optimizer: {lr: 1e-3}
)";
  const GptConfig cpu = FromYaml(kText), gpu = FromYaml(kText, "placement.device=gpu");
  EXPECT_EQ(cpu.query_width(), 400);
  EXPECT_EQ(gpu.query_width(), 448);
  EXPECT_EQ(gpu.key_width(), 224);
  for (const GptConfig& config : {cpu, gpu}) {
    EXPECT_EQ(config.head_dim, 100);
    EXPECT_EQ(config.rope.head_dim, 100);
    CheckConfig(config);
  }
}

TEST(GptConfig, EveryFieldByHand) {
  const GptConfig config = FromYaml(R"(
name: a
model: {layers: 3, hidden_size: 48, heads: 4, head_dim: 20, ffn_size: 100, vocab_size: 300,
        vocab_divisible_by: 64, seq_length: 32, max_positions: 40, norm_eps: 1e-6, init_std: 0.05,
        scaled_init: false}
data: {mock: true}
training: {micro_batch_size: 2, train_iters: 10, precision: fp32}
optimizer: {lr: 1e-3}
)");
  EXPECT_EQ(config.head_dim, 20);
  EXPECT_EQ(config.query_width(), 80);
  EXPECT_EQ(config.ffn, 100);
  EXPECT_EQ(config.vocab, 300);
  EXPECT_EQ(config.padded_vocab, 320);
  EXPECT_EQ(config.max_positions, 40);
  EXPECT_EQ(config.tokens(), 64);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.output_init_std(), 0.05);
  EXPECT_EQ(config.dtype, kernels::DType::kF32);
}

TEST(GptConfig, PositionsRestartWhereThereAreSomeAndDocuments) {
  const auto restarts = [](const std::string& position, const std::string& data) {
    const GptConfig config = FromYaml(fmt::format(R"(
name: a
model: {{layers: 2, hidden_size: 32, heads: 4, vocab_size: 300, seq_length: 32, position: {}}}
data: {{{}}}
training: {{micro_batch_size: 2, train_iters: 10}}
optimizer: {{lr: 1e-3}}
)",
                                                  position, data)
                                          .c_str());
    CheckConfig(config);
    EXPECT_EQ(config.sorts_positions(), config.reset_positions && position == "learned");
    return config.reset_positions;
  };
  for (const char* position : {"learned", "rope", "alibi", "none"}) {
    const bool has_some = std::string_view(position) == "learned" || position[0] == 'r';
    EXPECT_EQ(restarts(position, "path: [text], reset_positions: true"), has_some) << position;
    EXPECT_FALSE(restarts(position, "path: [text]")) << position;
    EXPECT_FALSE(restarts(position, "mock: true, reset_positions: true")) << position;
  }
}

TEST(GptConfig, DefaultsAreGpt2s) {
  const GptConfig config = FromYaml(R"(
name: a
model: {preset: gpt2-124m}
data: {mock: true}
training: {micro_batch_size: 1, train_iters: 10}
optimizer: {lr: 1e-3}
)");
  EXPECT_EQ(config.kv_heads, 12);
  EXPECT_EQ(config.position, PositionKind::kLearned);
  EXPECT_EQ(config.norm, kernels::NormKind::kLayerNorm);
  EXPECT_FALSE(config.norm_one_plus);
  EXPECT_EQ(config.activation, kernels::ActKind::kGelu);
  EXPECT_TRUE(config.bias && config.qkv_bias && config.tie_embeddings);
  EXPECT_FALSE(config.qk_norm || config.parallel_residual);
  EXPECT_EQ(config.window, 0);
  EXPECT_EQ(config.recompute.mode, RecomputeMode::kNone);
  EXPECT_EQ(config.shard.size, 1);
  CheckConfig(config);
}

TEST(GptConfig, EveryVariant) {
  const GptConfig config = FromYaml(R"(
name: a
model: {layers: 4, hidden_size: 64, heads: 8, kv_heads: 2, head_dim: 12, ffn_size: 96,
        vocab_size: 300, seq_length: 32, position: rope, norm: rmsnorm, norm_one_plus: true,
        activation: geglu, bias: false, qkv_bias: true, qk_norm: true, tie_embeddings: false,
        parallel_residual: true, window: 9,
        rope: {base: 500000, percent: 0.5,
               scaling: {type: llama3, factor: 8, low_freq_factor: 2, high_freq_factor: 5,
                         original_positions: 16}}}
data: {mock: true}
training: {micro_batch_size: 2, train_iters: 10, precision: fp32,
           recompute: {mode: full, method: block, layers: 3}}
optimizer: {lr: 1e-3}
)");
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.key_width(), 24);
  EXPECT_EQ(config.position, PositionKind::kRope);
  EXPECT_EQ(config.rope.head_dim, 12);
  EXPECT_EQ(config.rope.base, 500000);
  EXPECT_EQ(config.rope.percent, 0.5);
  EXPECT_EQ(config.rope.scaling.kind, kernels::RopeScalingKind::kLlama3);
  EXPECT_EQ(config.rope.scaling.factor, 8);
  EXPECT_EQ(config.rope.scaling.low_freq_factor, 2);
  EXPECT_EQ(config.rope.scaling.high_freq_factor, 5);
  EXPECT_EQ(config.rope.scaling.original_positions, 16);
  EXPECT_EQ(config.norm, kernels::NormKind::kRmsNorm);
  EXPECT_TRUE(config.norm_one_plus);
  EXPECT_EQ(config.activation, kernels::ActKind::kGeglu);
  EXPECT_FALSE(config.bias);
  EXPECT_TRUE(config.qkv_bias && config.qk_norm && config.parallel_residual);
  EXPECT_FALSE(config.tie_embeddings);
  EXPECT_EQ(config.window, 9);
  EXPECT_EQ(config.recompute.mode, RecomputeMode::kFull);
  EXPECT_EQ(config.recompute.method, RecomputeMethod::kBlock);
  EXPECT_EQ(config.recompute.layers, 3);
  CheckConfig(config);
}

// The values of each enumeration that EveryVariant does not have.
TEST(GptConfig, OtherValues) {
  const auto with = [](const char* model, const char* recompute) {
    return FromYaml(fmt::format(R"(
name: a
model: {{layers: 4, hidden_size: 64, heads: 8, vocab_size: 300, seq_length: 32, {}}}
data: {{mock: true}}
training: {{micro_batch_size: 1, train_iters: 10, recompute: {{{}}}}}
optimizer: {{lr: 1e-3}}
)",
                                model, recompute)
                        .c_str());
  };
  const GptConfig alibi = with("position: alibi, activation: swiglu", "mode: selective");
  EXPECT_EQ(alibi.position, PositionKind::kAlibi);
  EXPECT_EQ(alibi.activation, kernels::ActKind::kSwiglu);
  EXPECT_EQ(alibi.ffn, 128);  // int(8 * 64 / 3 / 64) * 64
  EXPECT_EQ(alibi.recompute.mode, RecomputeMode::kSelective);
  const GptConfig none = with("position: none, activation: relu2", "mode: full");
  EXPECT_EQ(none.position, PositionKind::kNone);
  EXPECT_EQ(none.activation, kernels::ActKind::kRelu2);
  EXPECT_EQ(none.recompute.mode, RecomputeMode::kFull);
  EXPECT_EQ(none.recompute.method, RecomputeMethod::kUniform);
  EXPECT_EQ(none.recompute.layers, 1);
  const GptConfig linear =
      with("position: rope, rope: {scaling: {type: linear, factor: 4}}", "mode: none");
  EXPECT_EQ(linear.rope.scaling.kind, kernels::RopeScalingKind::kLinear);
  EXPECT_EQ(linear.rope.scaling.factor, 4);
  EXPECT_EQ(linear.rope.base, 10000);
  EXPECT_EQ(linear.rope.percent, 1);
  const GptConfig rope = with("position: rope", "mode: none");
  EXPECT_EQ(rope.rope.scaling.kind, kernels::RopeScalingKind::kNone);
}

}  // namespace
}  // namespace mt::model
