// Positions that restart at documents against Megatron's rule and PyTorch
// (tests/golden/positions_torch.py).
#include <string>

#include <gtest/gtest.h>

#include "tests/worker/model/golden_file.h"
#include "tests/worker/model/model_rig.h"

namespace mt::model {
namespace {

const GoldenFile& Documents() {
  static const GoldenFile file("positions_torch.safetensors");
  return file;
}

// As the loader makes it.
data::Microbatch BatchOfDocuments() {
  data::Microbatch batch = Documents().Batch();
  batch.positions.resize(batch.tokens.size());
  const auto eod = static_cast<int32_t>(Documents().Size("eod"));
  std::vector<int32_t> inputs(static_cast<size_t>(batch.s));
  for (int64_t i = 0; i < batch.b; ++i) {
    for (int64_t t = 0; t < batch.s; ++t)
      inputs[static_cast<size_t>(t)] = batch.tokens[static_cast<size_t>(t * batch.b + i)];
    data::PlacePositions(inputs, eod, i, &batch);
  }
  data::SortPositions(&batch);
  return batch;
}

TEST(RestartingPositions, AreMegatrons) {
  EXPECT_EQ(BatchOfDocuments().positions, Documents().Ints("positions"));
}

class RestartingGolden : public ::testing::TestWithParam<std::string> {
 protected:
  static void Compare(kernels::DType dtype, const GoldenBounds& bounds) {
    GptConfig config = VariantConfig(Documents(), GetParam(), dtype);
    config.reset_positions = true;
    ModelRig rig(config);
    const std::string grads = GetParam() + "/grad/";
    ASSERT_EQ(Documents().NamesBehind(grads).size(), static_cast<size_t>(rig.registry().size()));
    SetVariantWeights(Documents(), &rig);
    rig.Run(BatchOfDocuments());
    ExpectGolden(&rig, Documents(), GetParam() + "/loss", grads, bounds);
  }
};

TEST_P(RestartingGolden, Fp32) {
  Compare(kernels::DType::kF32, {.loss = 5e-7, .relative = 1e-5, .floor = 1e-7});
}

TEST_P(RestartingGolden, Fp64) {
  Compare(kernels::DType::kF64, {.loss = 1e-14, .relative = 1e-12, .floor = 1e-15});
}

INSTANTIATE_TEST_SUITE_P(All, RestartingGolden, ::testing::ValuesIn(VariantNames(Documents())),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace mt::model
