// Loss and every parameter's gradient of each model variant against PyTorch
// (tests/golden/variants_torch.py). The reference is in fp64, so every precision is held to the
// true gradient.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/model/golden_file.h"
#include "tests/worker/model/model_rig.h"

namespace mt::model {
namespace {

const GoldenFile& File() {
  static const GoldenFile file("variants_torch.safetensors");
  return file;
}

class VariantGolden : public ::testing::TestWithParam<std::string> {
 protected:
  static GptConfig Config(kernels::DType dtype) { return VariantConfig(File(), GetParam(), dtype); }

  static void Run(ModelRig* rig) {
    SetVariantWeights(File(), rig);
    rig->Run(File().Batch());
  }

  static void Compare(kernels::DType dtype, const GoldenBounds& bounds) {
    ModelRig rig(Config(dtype));
    // The same parameters under the same names.
    const std::string grads = GetParam() + "/grad/";
    ASSERT_EQ(File().NamesBehind(grads).size(), static_cast<size_t>(rig.registry().size()));
    Run(&rig);
    ExpectGolden(&rig, File(), GetParam() + "/loss", grads, bounds);
  }

  // With weights and activations of 8 or 11 bits: all gradients as one vector.
  static void CompareRounded(kernels::DType dtype, double loss_bound, double bound) {
    ModelRig rig(Config(dtype));
    Run(&rig);
    const double loss = File().Doubles(GetParam() + "/loss")[0];
    EXPECT_NEAR(rig.TakeSums().loss, loss, loss_bound * loss);
    double difference = 0, size = 0;
    for (const params::ParamId id : rig.Ids()) {
      const std::vector<double> want = File().Doubles(GetParam() + "/grad/" + rig.NameOf(id));
      std::vector<double> got = rig.Grad(id);
      got.resize(want.size());
      difference = std::hypot(difference, Distance(got, want));
      size = std::hypot(size, Norm(want));
    }
    EXPECT_LE(difference, bound * size);
  }
};

TEST_P(VariantGolden, Fp32) {
  Compare(kernels::DType::kF32, {.loss = 5e-7, .relative = 1e-5, .floor = 1e-7});
}

TEST_P(VariantGolden, Fp64) {
  Compare(kernels::DType::kF64, {.loss = 1e-14, .relative = 1e-12, .floor = 1e-15});
}

// Largest measured: 0.12 and 0.021, of networks whose gains of about 2 magnify rounding; the median
// is a tenth.
TEST_P(VariantGolden, Bf16) { CompareRounded(kernels::DType::kBf16, 1e-2, 0.15); }

TEST_P(VariantGolden, Fp16) { CompareRounded(kernels::DType::kF16, 2e-3, 0.025); }

INSTANTIATE_TEST_SUITE_P(All, VariantGolden, ::testing::ValuesIn(VariantNames(File())),
                         [](const auto& param) { return param.param; });

// Bytes that one layer more keeps: norms, packed projection, attention, feed-forward, statistics.
int64_t KeptByALayer(GptConfig config) {
  const auto kept = [&](int64_t layers) {
    config.layers = layers;
    const ModelRig rig(config);
    return rig.memory().Report()[static_cast<size_t>(memory::Kind::kActivations)];
  };
  return kept(3) - kept(2);
}

TEST(Variants, KeepWhatTheDesignLists) {
  GptConfig config = SmallConfig();  // fp64: 8 bytes everywhere
  config.micro_batch = 8;            // every tensor a multiple of the arenas' alignment
  config.seq = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.norm = kernels::NormKind::kRmsNorm;
  config.activation = kernels::ActKind::kSwiglu;
  config.position = PositionKind::kRope;
  config.rope.head_dim = config.head_dim;
  const int64_t tokens = config.tokens(), h = config.hidden, f = config.ffn;
  const int64_t q = config.query_width(), k = config.key_width();
  const int64_t layer = 4 * h + (q + 2 * k) + q + 3 * f + config.heads + 2;
  EXPECT_EQ(KeptByALayer(config), 8 * tokens * layer);
  config.parallel_residual = true;  // one norm less
  EXPECT_EQ(KeptByALayer(config), 8 * tokens * (layer - 2 * h - 1));
  config.qk_norm = true;  // q and k as they came, and a statistic of each head
  EXPECT_EQ(KeptByALayer(config),
            8 * tokens * (layer - 2 * h - 1 + q + k + config.heads + config.kv_heads));
}

TEST(Variants, DeclareInitialValues) {
  GptConfig config = SmallConfig();
  config.init_std = 0.5;
  config.activation = kernels::ActKind::kGeglu;
  config.tie_embeddings = false;
  config.qk_norm = true;
  const ModelRig plain(config);
  const auto std_of = [&](const char* name) { return plain.registry()[plain.IdOf(name)].std; };
  EXPECT_EQ(std_of("layers.1.ffn.gate.weight"), 0.5);
  EXPECT_EQ(std_of("layers.1.ffn.up.weight"), 0.5);
  EXPECT_EQ(std_of("layers.1.ffn.down.weight"), 0.25);  // 0.5 / sqrt(2 x 2 layers)
  EXPECT_EQ(std_of("head.weight"), 0.5);
  config.norm_one_plus = true;
  const ModelRig one_plus(config);
  for (const char* name : {"layers.0.norm1.weight", "layers.1.attention.q_norm.weight",
                           "layers.1.attention.k_norm.weight", "final_norm.weight"}) {
    for (const double x : plain.Weight(plain.IdOf(name))) EXPECT_EQ(x, 1.0) << name;
    for (const double x : one_plus.Weight(one_plus.IdOf(name))) EXPECT_EQ(x, 0.0) << name;
  }
  for (const params::ParamId id : plain.Ids()) {
    const params::ParamSpec& spec = plain.registry()[id];
    EXPECT_EQ(spec.decay, params::DecaysByMegatronRule(spec.name, spec.shape)) << spec.name;
  }
}

// A window of the whole sequence is no window, a stretch by 1 no stretch.
TEST(Variants, CoincideWhereTheyMust) {
  GptConfig config = SmallConfig();
  config.position = PositionKind::kRope;
  config.rope.head_dim = config.head_dim;
  const data::Microbatch batch = RandomBatch(config, 1, 0);
  const auto run = [&](const GptConfig& variant) {
    ModelRig rig(variant);
    rig.Run(batch);
    return rig.GradBytes();
  };
  const std::vector<uint8_t> plain = run(config);
  GptConfig same = config;
  same.window = config.seq;
  EXPECT_EQ(run(same), plain);
  same.window = config.seq - 1;
  EXPECT_NE(run(same), plain);
  same = config;
  same.rope.scaling = {.kind = kernels::RopeScalingKind::kLinear, .factor = 1};
  EXPECT_EQ(run(same), plain);
  same.rope.base = 20000;
  EXPECT_NE(run(same), plain);
}

// Positions that each token has of its own and that nothing restarts are those of the sample, with
// dropout as well, whose masks do not restart.
TEST(Variants, PositionsOfTheirOwnThatCountThroughAreTheSamples) {
  GptConfig learned = SmallConfig();
  learned.hidden_dropout = learned.attention_dropout = 0.2;
  GptConfig rope = learned;
  rope.position = PositionKind::kRope;
  rope.rope.head_dim = rope.head_dim;
  rope.qk_norm = true;
  for (GptConfig config : {learned, rope}) {
    data::Microbatch batch = RandomBatch(config, 1, 0);
    const auto run = [&] {
      ModelRig rig(config);
      rig.Run(batch);
      return rig.GradBytes();
    };
    const std::vector<uint8_t> plain = run();
    config.reset_positions = true;
    const data::Microbatch through = data::EmptyMicrobatch(
        config.seq, config.micro_batch, {.positions = true, .position_order = true});
    batch.positions = through.positions;
    data::SortPositions(&batch);
    EXPECT_EQ(run(), plain);
    RestartPositions(&batch);
    EXPECT_NE(run(), plain);
  }
}

}  // namespace
}  // namespace mt::model
