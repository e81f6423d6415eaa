// Models of jobs for tests of worker/hf: small, one for each family.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/hf/family.h"

namespace mt::hf {

// A completed job with this text as its model, on CPU slots.
inline megatrain::v1::JobSpec JobOf(const std::string& model) {
  const std::string text = fmt::format(
      "name: small\nmodel: {{layers: 2, hidden_size: 32, heads: 4, seq_length: 16, vocab_size: 96, "
      "{}}}\ndata: {{mock: true}}\ntraining: {{micro_batch_size: 1, train_iters: 10}}\n"
      "optimizer: {{lr: 1e-3}}\nplacement: {{device: cpu}}\n",
      model);
  megatrain::v1::JobSpec job;
  const spec::Faults faults = spec::LoadJob(text, {}, {}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

inline const std::string kLlamaModel =
    "position: rope, norm: rmsnorm, norm_eps: 1e-6, activation: swiglu, ffn_size: 80, bias: false, "
    "tie_embeddings: false";
inline const std::string kNeoxModel =
    "position: rope, tie_embeddings: false, rope: {percent: 0.25}";

// One or more models of each family: family, the model's fields.
inline std::vector<std::pair<Family, std::string>> ModelsOfFamilies() {
  const std::string untied = kLlamaModel + ", ";
  return {
      {Family::kGpt2, "position: learned"},
      {Family::kGpt2, "position: learned, bias: false, tie_embeddings: false"},
      {Family::kLlama, kLlamaModel},
      {Family::kLlama, untied + "kv_heads: 2, head_dim: 10, rope: {base: 500000, scaling: {type: "
                                "llama3, factor: 8, original_positions: 8}}"},
      {Family::kLlama,
       "position: rope, norm: rmsnorm, activation: geglu, rope: {scaling: {type: linear, factor: "
       "2}}"},
      {Family::kMistral, untied + "kv_heads: 2, window: 6"},
      {Family::kQwen2, untied + "qkv_bias: true, kv_heads: 1"},
      {Family::kQwen2, untied + "qkv_bias: true, kv_heads: 1, window: 5"},
      {Family::kQwen3, untied + "qk_norm: true, kv_heads: 2, head_dim: 16"},
      {Family::kGptNeox, kNeoxModel},
      {Family::kGptNeox, kNeoxModel + ", parallel_residual: true, activation: gelu_erf"},
  };
}

}  // namespace mt::hf
