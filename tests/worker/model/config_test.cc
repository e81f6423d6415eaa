// From a job file to the model's numbers.
#include <cmath>

#include <gtest/gtest.h>

#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/model/gpt_config.h"

namespace mt::model {
namespace {

GptConfig FromYaml(const char* text) {
  megatrain::v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(text, {}, {}, &job);
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

}  // namespace
}  // namespace mt::model
