// Which model has which class, and what has none; parameters and tensors of each family.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/hf/hf_models.h"
#include "worker/hf/tensors.h"
#include "worker/model/gpt_config.h"
#include "worker/model/gpt_model.h"
#include "worker/params/registry.h"

namespace mt::hf {
namespace {

TEST(Family, OfEachModel) {
  for (const auto& [family, model] : ModelsOfFamilies()) {
    const auto found = FamilyOf(JobOf(model).model());
    ASSERT_TRUE(found.ok()) << model << ": " << found.status();
    EXPECT_EQ(*found, family) << model;
    EXPECT_EQ(FamilyOfType(ModelType(family)), family);
  }
}

TEST(Family, WhatHasNoNameIsRefusedByField) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"position: alibi", "model.position: alibi"},
      {"position: none", "model.position: none"},
      {"activation: relu2", "model.activation: relu2"},
      {"norm: rmsnorm", "model.norm: rmsnorm"},
      {"activation: swiglu", "model.activation"},
      {"parallel_residual: true", "model.parallel_residual"},
      {"kv_heads: 2", "model.kv_heads"},
      {"head_dim: 16", "model.head_dim"},
      {"qk_norm: true", "model.qk_norm"},
      {"window: 8", "model.window"},
      {kNeoxModel + ", kv_heads: 2", "model.kv_heads"},
      {kLlamaModel + ", parallel_residual: true", "model.parallel_residual"},
      {kLlamaModel + ", rope: {percent: 0.5}", "model.rope.percent"},
      {kLlamaModel + ", qk_norm: true, qkv_bias: true", "model.qk_norm"}};
  for (const auto& [model, field] : refused) {
    const auto family = FamilyOf(JobOf(model).model());
    EXPECT_TRUE(absl::IsFailedPrecondition(family.status())) << model;
    EXPECT_NE(base::Message(family.status()).find(field), std::string::npos) << family.status();
  }
  // All of them at once.
  const auto family = FamilyOf(JobOf("norm: rmsnorm, window: 8").model());
  EXPECT_NE(base::Message(family.status()).find("rmsnorm"), std::string::npos);
  EXPECT_NE(base::Message(family.status()).find("window"), std::string::npos);
}

// The list here is what worker/model registers, whatever the variant.
TEST(Tensors, ParametersAreThoseOfTheModel) {
  std::vector<std::string> models = {"position: alibi, activation: relu2", "qk_norm: true"};
  for (const auto& [family, model] : ModelsOfFamilies()) models.push_back(model);
  for (const std::string& text : models) {
    const auto job = JobOf(text);
    model::GptConfig config = model::ConfigFromJob(job);
    config.head_chunk_tokens = 1;  // else the backend is asked
    params::Registry registry;
    model::GptModel(config, nullptr, nullptr).RegisterParams(&registry);
    std::map<std::string, Shape> registered;
    for (const params::ParamSpec& spec : registry.params()) {
      Shape& shape = registered[spec.name];
      for (int d = 0; d < spec.shape.rank(); ++d) shape.push_back(spec.shape[d]);
    }
    EXPECT_EQ(ParametersOf(job.model()), registered) << text;
  }
}

// Each row of each parameter lies in one place, and each tensor is made of whole rows.
TEST(Tensors, HoldEveryRowOfEveryParameter) {
  for (const auto& [family, text] : ModelsOfFamilies()) {
    const auto job = JobOf(text);
    const auto parameters = ParametersOf(job.model());
    const std::vector<HfTensor> tensors = TensorsOf(job.model(), family);
    std::set<std::string> names;
    for (const HfTensor& tensor : tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      int64_t rows = 0;
      for (const Rows& run : tensor.rows) {
        rows += run.count;
        if (run.parameter.empty()) continue;
        const Shape& shape = parameters.at(run.parameter);
        EXPECT_LE(run.first + run.count, shape[0]) << tensor.name;
        EXPECT_EQ(shape.size(), tensor.shape.size()) << tensor.name;
        if (shape.size() == 2) {
          EXPECT_EQ(shape[1], tensor.shape[tensor.transposed ? 0 : 1]);
        }
      }
      EXPECT_EQ(rows, tensor.shape[tensor.transposed ? 1 : 0]) << tensor.name;
    }
    const auto sources = SourcesOf(tensors);
    for (const auto& [name, shape] : parameters) {
      ASSERT_TRUE(sources.contains(name)) << text << " " << name;
      int64_t next = 0;
      for (const Source& source : sources.at(name)) {
        EXPECT_EQ(source.first, next) << name;
        next += source.count;
      }
      EXPECT_EQ(next, shape[0]) << name;
    }
  }
}

TEST(Tensors, NeoxStoresQueriesKeysAndValuesByHead) {
  const auto job = JobOf(kNeoxModel);
  const std::vector<HfTensor> tensors = TensorsOf(job.model(), Family::kGptNeox);
  const auto fused = std::ranges::find(
      tensors, "gpt_neox.layers.1.attention.query_key_value.weight", &HfTensor::name);
  ASSERT_NE(fused, tensors.end());
  ASSERT_EQ(fused->rows.size(), 12U);
  EXPECT_EQ(fused->rows[4].parameter, "layers.1.attention.k.weight");
  EXPECT_EQ(fused->rows[4].first, 8);
  EXPECT_EQ(fused->rows[4].count, 8);
  EXPECT_EQ(SourcesOf(tensors).at("layers.1.attention.v.weight").at(3).tensor_first, 88);
}

TEST(Tensors, OlderFilesHaveBuffersBesides) {
  EXPECT_TRUE(IsBuffer(Family::kGpt2, "h.0.attn.bias"));
  EXPECT_FALSE(IsBuffer(Family::kGpt2, "h.0.attn.c_attn.bias"));
  EXPECT_TRUE(IsBuffer(Family::kGptNeox, "gpt_neox.layers.0.attention.masked_bias"));
  EXPECT_FALSE(IsBuffer(Family::kGptNeox, "gpt_neox.layers.0.attention.dense.bias"));
  EXPECT_TRUE(IsBuffer(Family::kLlama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(IsBuffer(Family::kLlama, "model.layers.0.self_attn.q_proj.bias"));
}

}  // namespace
}  // namespace mt::hf
