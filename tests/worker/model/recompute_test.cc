// Recomputation: every mode gives the same bits as no recomputation, and keeps as many bytes as the
// formulas say (Korthikanti et al. 2022, section 5).
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/model/mesh_rig.h"

namespace mt::model {
namespace {

struct Mode {
  const char* name;
  Recompute recompute;
};

const Mode kModes[] = {
    {"selective", {.mode = RecomputeMode::kSelective}},
    {"uniform 1", {.mode = RecomputeMode::kFull, .method = RecomputeMethod::kUniform}},
    {"uniform 2", {.mode = RecomputeMode::kFull, .method = RecomputeMethod::kUniform, .layers = 2}},
    {"uniform 9", {.mode = RecomputeMode::kFull, .method = RecomputeMethod::kUniform, .layers = 9}},
    {"block 1", {.mode = RecomputeMode::kFull, .method = RecomputeMethod::kBlock}},
    {"block 2", {.mode = RecomputeMode::kFull, .method = RecomputeMethod::kBlock, .layers = 2}},
    {"block 9", {.mode = RecomputeMode::kFull, .method = RecomputeMethod::kBlock, .layers = 9}},
};

// No multiple of a group.
constexpr int64_t kLayers = 5;

void ExpectTheSameBits(GptConfig config, const MeshLayout& layout) {
  config.layers = kLayers;
  config.recompute = {};
  const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
  const MeshResult want = RunMesh(config, layout, batches);
  for (const Mode& mode : kModes) {
    config.recompute = mode.recompute;
    const MeshResult got = RunMesh(config, layout, batches);
    EXPECT_EQ(got.sums.loss, want.sums.loss) << mode.name;
    EXPECT_EQ(got.grad_bytes, want.grad_bytes) << mode.name;
    EXPECT_LT(got.kept_bytes[0], want.kept_bytes[0]) << mode.name;
  }
}

TEST(Recompute, EveryModeGivesTheBitsOfNone) {
  ExpectTheSameBits(GptLike(), {});
  GptConfig config = LlamaLike();
  ExpectTheSameBits(config, {});
  config.qk_norm = true;
  ExpectTheSameBits(config, {});
}

TEST(Recompute, InFp32) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    config.dtype = kernels::DType::kF32;
    ExpectTheSameBits(config, {});
  }
}

// What a norm reads is rounded to 16 bits when it is closed, so that it may be read again.
TEST(Recompute, InBf16) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    config.dtype = kernels::DType::kBf16;
    ExpectTheSameBits(config, {});
  }
}

TEST(Recompute, WithAParallelResidual) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    config.parallel_residual = true;
    ExpectTheSameBits(config, {});
  }
}

TEST(Recompute, OnTensorRanksAndStages) {
  for (const bool sequence_parallel : {false, true}) {
    ExpectTheSameBits(
        GptLike(),
        {.tp = 2, .sequence_parallel = sequence_parallel, .layers = {2, 1, 1, 1}, .stages = 2});
    ExpectTheSameBits(LlamaLike(), {.tp = 2, .sequence_parallel = sequence_parallel});
  }
}

TEST(Recompute, KeepsWhatTheFormulasSay) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    config.layers = kLayers;
    for (const MeshLayout& layout :
         {MeshLayout{}, MeshLayout{.tp = 4, .sequence_parallel = true}}) {
      GptConfig own = config;
      own.shard = {.size = layout.tp, .sequence_parallel = layout.sequence_parallel};
      const KeptFormula bytes(own);
      const auto expect = [&](const Recompute& recompute, int64_t layers) {
        config.recompute = recompute;
        const int64_t got = RunMesh(config, layout, {RandomBatch(config, 1, 0)}).kept_bytes[0];
        const int64_t want = layers + bytes.Residual();  // of the head
        EXPECT_GE(got, want);
        EXPECT_LE(got, want + KeptFormula::Slack(6));
      };
      expect({}, kLayers * bytes.Layer());
      expect(kModes[0].recompute, kLayers * bytes.SelectiveLayer());
      expect(kModes[1].recompute, kLayers * bytes.Residual());
      expect(kModes[2].recompute, 3 * bytes.Residual());
      expect(kModes[3].recompute, bytes.Residual());
      expect(kModes[4].recompute, bytes.Residual() + 4 * bytes.Layer());
      expect(kModes[5].recompute, 2 * bytes.Residual() + 3 * bytes.Layer());
      expect(kModes[6].recompute, kLayers * bytes.Residual());
    }
  }
}

// One layer's activations at a time, however many are recomputed.
TEST(Recompute, ScratchIsOneGroupPerRank) {
  GptConfig config = GptLike();
  config.layers = kLayers;
  const std::vector<data::Microbatch> batches = RandomBatches(config, 1);
  const MeshLayout two_chunks = {.layers = {2, 1, 2, 0}, .stages = 2};
  const int64_t none = RunMesh(config, two_chunks, batches).workspace_bytes[0];
  const auto with = [&](const Recompute& recompute) {
    config.recompute = recompute;
    return RunMesh(config, two_chunks, batches).workspace_bytes[0] - none;
  };
  const int64_t one = with(kModes[1].recompute);
  EXPECT_GT(one, 0);
  EXPECT_LE(one, KeptFormula(config).Layer() + KeptFormula::Slack(1));
  EXPECT_EQ(with(kModes[4].recompute), one);
  EXPECT_EQ(with(kModes[6].recompute), one);
  EXPECT_GT(with(kModes[2].recompute), one);
}

}  // namespace
}  // namespace mt::model
