// Loss and every parameter's gradient of each model variant against PyTorch
// (tests/golden/variants_torch.py). The reference is in fp64, so fp32 too is held to the true
// gradient.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "tests/worker/model/golden_file.h"
#include "tests/worker/model/model_rig.h"

namespace mt::model {
namespace {

using nlohmann::json;

const GoldenFile& File() {
  static const GoldenFile file("variants_torch.safetensors");
  return file;
}

// One of `values`, which are the names that the script gives to the enumerators 0, 1, ...
template <class Enum>
Enum Named(const json& name, const std::vector<std::string>& values) {
  const auto found = std::find(values.begin(), values.end(), name.get<std::string>());
  CHECK(found != values.end()) << "unknown name " << name.dump();
  return static_cast<Enum>(found - values.begin());
}

kernels::RopeConfig RopeOf(const json& c) {
  return {.head_dim = c["head_dim"],
          .percent = c["rope_percent"],
          .base = c["rope_base"],
          .scaling = {
              .kind = Named<kernels::RopeScalingKind>(c["scaling"], {"none", "linear", "llama3"}),
              .factor = c["factor"],
              .low_freq_factor = c["low_freq_factor"],
              .high_freq_factor = c["high_freq_factor"],
              .original_positions = c["original_positions"]}};
}

GptConfig ConfigOf(const json& c, kernels::DType dtype) {
  return {
      .layers = c["layers"],
      .hidden = c["hidden"],
      .heads = c["heads"],
      .kv_heads = c["kv_heads"],
      .head_dim = c["head_dim"],
      .ffn = c["ffn"],
      .vocab = File().Size("vocab"),
      .padded_vocab = 32,
      .seq = File().Size("seq"),
      .micro_batch = File().Size("batch"),
      .max_positions = File().Size("seq"),
      .position = Named<PositionKind>(c["position"], {"learned", "rope", "alibi", "none"}),
      .rope = RopeOf(c),
      .norm = Named<kernels::NormKind>(c["norm"], {"layernorm", "rmsnorm"}),
      .norm_one_plus = c["one_plus"],
      .norm_eps = c["eps"],
      .activation = Named<kernels::ActKind>(c["activation"], {"gelu", "swiglu", "geglu", "relu2"}),
      .bias = c["bias"],
      .qkv_bias = c["qkv_bias"],
      .qk_norm = c["qk_norm"],
      .tie_embeddings = c["tied"],
      .parallel_residual = c["parallel"],
      .window = c["window"],
      .dtype = dtype,
      .head_chunk_tokens = 16};
}

std::string WeightKey(const params::ParamSpec& spec) {
  std::string key = "weight/" + spec.name + "/" + std::to_string(spec.shape[0]);
  return spec.shape.rank() == 1 ? key : key + "x" + std::to_string(spec.shape[1]);
}

std::vector<std::string> VariantNames() {
  std::vector<std::string> names;
  const json variants = json::parse(File().Metadata("variants"));
  for (const auto& [name, config] : variants.items()) names.push_back(name);
  return names;
}

class VariantGolden : public ::testing::TestWithParam<std::string> {
 protected:
  static void Compare(kernels::DType dtype, const GoldenBounds& bounds) {
    const json config = json::parse(File().Metadata("variants"))[GetParam()];
    ModelRig rig(ConfigOf(config, dtype));
    // The same parameters under the same names.
    const std::string grads = GetParam() + "/grad/";
    ASSERT_EQ(File().NamesBehind(grads).size(), static_cast<size_t>(rig.registry().size()));
    for (const params::ParamId id : rig.Ids()) {
      rig.SetWeight(id, File().Doubles(WeightKey(rig.registry()[id])));
    }
    rig.Run(File().Batch());
    ExpectGolden(&rig, File(), GetParam() + "/loss", grads, bounds);
  }
};

TEST_P(VariantGolden, Fp32) {
  Compare(kernels::DType::kF32, {.loss = 5e-7, .relative = 1e-5, .floor = 1e-7});
}

TEST_P(VariantGolden, Fp64) {
  Compare(kernels::DType::kF64, {.loss = 1e-14, .relative = 1e-12, .floor = 1e-15});
}

INSTANTIATE_TEST_SUITE_P(All, VariantGolden, ::testing::ValuesIn(VariantNames()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace mt::model
