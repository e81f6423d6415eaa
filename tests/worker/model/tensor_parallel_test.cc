// Tensor and sequence parallelism: ranks as threads give what one rank gives, in fp64, with
// dropout, for every variant that cuts something of its own. RunMesh also holds the ranks to equal
// bits of what they replicate.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/model/mesh_rig.h"

namespace mt::model {
namespace {

void ExpectTensorRanksAgree(const GptConfig& config) {
  const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
  const MeshResult want = RunMesh(config, {}, batches);
  for (const int tp : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(testing::Message() << "tp " << tp << (sequence_parallel ? " sequence" : ""));
      ExpectSame(RunMesh(config, {.tp = tp, .sequence_parallel = sequence_parallel}, batches),
                 want);
    }
  }
}

TEST(TensorParallel, GptLike) { ExpectTensorRanksAgree(GptLike()); }

TEST(TensorParallel, LlamaLike) { ExpectTensorRanksAgree(LlamaLike()); }

TEST(TensorParallel, NothingIsDropped) {
  GptConfig config = GptLike();
  config.hidden_dropout = config.attention_dropout = 0;
  ExpectTensorRanksAgree(config);
}

TEST(TensorParallel, ParallelResidual) {
  GptConfig config = GptLike();
  config.parallel_residual = true;
  ExpectTensorRanksAgree(config);
  config = LlamaLike();
  config.parallel_residual = true;
  ExpectTensorRanksAgree(config);
}

// Gains of query and key heads are replicated, but see the rank's own heads alone.
TEST(TensorParallel, QueryAndKeyNorms) {
  GptConfig config = LlamaLike();
  config.qk_norm = true;
  config.norm_one_plus = true;
  ExpectTensorRanksAgree(config);
}

TEST(TensorParallel, SlopesOfGlobalHeads) {
  GptConfig config = GptLike();
  config.position = PositionKind::kAlibi;
  config.window = 7;
  ExpectTensorRanksAgree(config);
}

// 97 tokens in 256 rows: of four ranks the second holds 33 tokens, the last two padding alone.
TEST(TensorParallel, ARankMayHoldPaddingAlone) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    config.padded_vocab = 256;
    ExpectTensorRanksAgree(config);
  }
}

TEST(TensorParallel, WithStagesAndChunks) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    config.layers = 4;
    const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
    const MeshResult want = RunMesh(config, {}, batches);
    for (const bool sequence_parallel : {false, true}) {
      ExpectSame(RunMesh(config,
                         {.tp = 2,
                          .sequence_parallel = sequence_parallel,
                          .layers = {1, 1, 2, 0},
                          .stages = 2},
                         batches),
                 want);
    }
  }
}

TEST(TensorParallel, TheSameRunTwiceIsBitEqual) {
  const GptConfig config = GptLike();
  const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
  const MeshLayout layout = {.tp = 4, .sequence_parallel = true};
  const MeshResult first = RunMesh(config, layout, batches);
  const MeshResult second = RunMesh(config, layout, batches);
  EXPECT_EQ(first.sums.loss, second.sums.loss);
  EXPECT_EQ(first.grad_bytes, second.grad_bytes);
}

// Korthikanti et al. 2022, table 2: sequence parallelism cuts what tensor parallelism leaves whole.
TEST(TensorParallel, KeepsWhatTheFormulaSays) {
  const GptConfig config = GptLike();
  for (const int tp : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      const MeshLayout layout = {.tp = tp, .sequence_parallel = sequence_parallel};
      GptConfig own = config;
      own.shard = {.size = tp, .sequence_parallel = sequence_parallel};
      const KeptFormula bytes(own);
      EXPECT_EQ(bytes.rows, sequence_parallel ? config.tokens() / tp : config.tokens());
      const int64_t got = RunMesh(config, layout, {RandomBatch(config, 1, 0)}).kept_bytes[0];
      const int64_t want = config.layers * bytes.Layer() + bytes.Residual();
      EXPECT_GE(got, want);
      EXPECT_LE(got, want + KeptFormula::Slack(3));
    }
  }
}

TEST(TensorParallel, DeclaresPartsOfTheLogicalTensors) {
  GptConfig config = GptLike();
  config.shard = {.rank = 1, .size = 2, .sequence_parallel = true};
  params::Registry registry;
  Stage(config, {.num_layers = config.layers}).Register(&registry);
  const auto spec = [&](const std::string& name) { return registry[*registry.Find(name)]; };
  using kernels::Shape;
  EXPECT_EQ(spec("layers.0.attention.q.weight").stored, (Shape{12, 24}));
  EXPECT_EQ(spec("layers.0.attention.q.weight").begin, (std::array<int64_t, 2>{12, 0}));
  EXPECT_EQ(spec("layers.0.attention.out.weight").stored, (Shape{24, 12}));
  EXPECT_EQ(spec("layers.0.attention.out.weight").begin, (std::array<int64_t, 2>{0, 12}));
  EXPECT_EQ(spec("layers.1.ffn.up.bias").begin, (std::array<int64_t, 2>{40, 0}));
  EXPECT_EQ(spec("layers.1.ffn.down.bias").stored, (Shape{24}));
  EXPECT_TRUE(spec("layers.1.ffn.down.bias").partial);
  EXPECT_TRUE(spec("layers.1.norm2.weight").partial);
  EXPECT_TRUE(spec("final_norm.bias").partial);
  EXPECT_FALSE(spec("layers.1.ffn.up.bias").partial);
  EXPECT_EQ(spec("embedding.word.weight").begin, (std::array<int64_t, 2>{64, 0}));
  EXPECT_EQ(spec("embedding.word.weight").Held(), (Shape{33, 24}));
  EXPECT_FALSE(spec("embedding.position.weight").partial);
}

}  // namespace
}  // namespace mt::model
