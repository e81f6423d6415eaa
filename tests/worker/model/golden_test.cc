// Loss and every parameter's gradient of a 2-layer GPT-2 against PyTorch
// (tests/golden/gpt2_torch.py).
#include <string>

#include <gtest/gtest.h>

#include "tests/worker/model/golden_file.h"
#include "tests/worker/model/model_rig.h"

namespace mt::model {
namespace {

GptConfig ConfigOf(const GoldenFile& file, kernels::DType dtype) {
  return {.layers = file.Size("layers"),
          .hidden = file.Size("hidden"),
          .heads = file.Size("heads"),
          .kv_heads = file.Size("heads"),
          .head_dim = file.Size("head_dim"),
          .ffn = file.Size("ffn"),
          .vocab = file.Size("vocab"),
          .padded_vocab = 128,
          .seq = file.Size("seq"),
          .micro_batch = file.Size("batch"),
          .max_positions = file.Size("max_positions"),
          .dtype = dtype};
}

void CompareWithTorch(kernels::DType dtype, const std::string& label, const GoldenBounds& bounds) {
  const GoldenFile file("gpt2_torch.safetensors");
  ModelRig rig(ConfigOf(file, dtype));
  for (const params::ParamId id : rig.Ids()) {
    rig.SetWeight(id, file.Doubles("weight/" + rig.NameOf(id)));
  }
  rig.Run(file.Batch());
  ExpectGolden(&rig, file, "loss_" + label, "grad_" + label + "/", bounds);
}

TEST(Golden, Fp32GradientsAgreeWithPyTorch) {
  CompareWithTorch(kernels::DType::kF32, "f32", {.loss = 2e-7, .relative = 1e-5, .floor = 1e-7});
}

TEST(Golden, Fp64GradientsAgreeWithPyTorch) {
  CompareWithTorch(kernels::DType::kF64, "f64", {.loss = 1e-14, .relative = 1e-13, .floor = 1e-15});
}

// Every parameter of the file is one of ours and the other way round, under the same name.
TEST(Golden, NamesAndSizesAgreeWithPyTorch) {
  const GoldenFile file("gpt2_torch.safetensors");
  const ModelRig rig(ConfigOf(file, kernels::DType::kF32));
  EXPECT_EQ(rig.registry().size(), 2 + 2 * 16 + 2);
  EXPECT_EQ(file.NamesBehind("weight/").size(), static_cast<size_t>(rig.registry().size()));
  for (const params::ParamId id : rig.Ids()) {
    EXPECT_EQ(static_cast<int64_t>(file.Doubles("weight/" + rig.NameOf(id)).size()),
              rig.registry()[id].shape.NumElements());
  }
}

}  // namespace
}  // namespace mt::model
