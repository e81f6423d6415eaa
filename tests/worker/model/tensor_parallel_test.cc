// Tensor and sequence parallelism: ranks as threads give the same result as a single rank, in fp64,
// with dropout, for every variant that shards something of its own. RunMesh also checks that
// replicated values are bit-equal on all ranks.
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

// Ranks that hold parts of the sequence have their own rows' positions; stages behind the first one
// turn by those of the same microbatch.
TEST(TensorParallel, PositionsThatRestart) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    const MeshResult through = RunMesh(config, {}, RandomBatches(config, 2));
    config.reset_positions = true;
    ExpectTensorRanksAgree(config);
    const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
    const MeshResult want = RunMesh(config, {}, batches);
    EXPECT_NE(want.sums.loss, through.sums.loss) << "the test's own proof";
    config.layers = 4;
    const MeshResult deep = RunMesh(config, {}, batches);
    ExpectSame(
        RunMesh(config, {.tp = 2, .sequence_parallel = true, .layers = {1, 1, 2, 0}, .stages = 2},
                batches),
        deep);
    config.recompute.mode = RecomputeMode::kFull;
    ExpectSame(RunMesh(config, {.tp = 2, .sequence_parallel = true}, batches), deep);
  }
}

// 97 tokens in 256 rows: of four ranks the second holds 33 tokens, the last two padding alone.
TEST(TensorParallel, ARankMayHoldPaddingAlone) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    config.padded_vocab = 256;
    ExpectTensorRanksAgree(config);
  }
}

// Heads stored larger than they are are the same heads: alone, on tensor ranks and stages.
void ExpectPaddingChangesNothing(const GptConfig& config, int64_t stored_head_dim) {
  const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
  const MeshResult want = RunMesh(config, {}, batches);
  GptConfig padded = config;
  padded.stored_head_dim = stored_head_dim;
  const MeshLayout layouts[] = {
      {},
      {.tp = 2},
      {.tp = 4, .sequence_parallel = true},
      {.tp = 2, .sequence_parallel = true, .layers = {1, config.layers - 1}, .stages = 2}};
  for (const MeshLayout& layout : layouts) {
    SCOPED_TRACE(testing::Message() << "tp " << layout.tp << ", stages " << layout.stages);
    ExpectSame(RunMesh(padded, layout, batches), want);
  }
}

TEST(PaddedHeads, GptLike) {
  ExpectPaddingChangesNothing(GptLike(), 8);
  ExpectPaddingChangesNothing(GptLike(), 16);
}

TEST(PaddedHeads, LlamaLike) { ExpectPaddingChangesNothing(LlamaLike(), 16); }

TEST(PaddedHeads, HalfRotatedWithSlopesOrWindow) {
  GptConfig config = LlamaLike();
  config.rope.percent = 0.5;
  config.window = 7;
  ExpectPaddingChangesNothing(config, 11);
  config = GptLike();
  config.position = PositionKind::kAlibi;
  ExpectPaddingChangesNothing(config, 9);
}

TEST(PaddedHeads, QueryAndKeyNorms) {
  for (const bool one_plus : {false, true}) {
    GptConfig config = LlamaLike();
    config.qk_norm = true;
    config.norm_one_plus = one_plus;
    config.qkv_bias = true;
    ExpectPaddingChangesNothing(config, 16);
  }
}

TEST(PaddedHeads, RecomputedActivations) {
  GptConfig config = LlamaLike();
  config.qk_norm = true;
  config.recompute.mode = RecomputeMode::kFull;
  ExpectPaddingChangesNothing(config, 16);
}

TEST(PaddedHeads, KeepWhatTheFormulaSays) {
  GptConfig config = GptLike();
  config.stored_head_dim = 16;
  const KeptFormula bytes(config);
  EXPECT_EQ(bytes.query, 16 * config.heads);
  const int64_t got = RunMesh(config, {}, {RandomBatch(config, 1, 0)}).kept_bytes[0];
  const int64_t want = config.layers * bytes.Layer() + bytes.Residual();
  EXPECT_GE(got, want);
  EXPECT_LE(got, want + KeptFormula::Slack(3));
}

TEST(PaddedHeads, AreDeclaredAsUnitsOfLogicalTensors) {
  GptConfig config = LlamaLike();
  config.stored_head_dim = 16;
  config.qk_norm = config.qkv_bias = true;
  config.shard = {.rank = 1, .size = 2};
  params::Registry registry;
  Stage(config, {.num_layers = config.layers}).Register(&registry);
  const auto spec = [&](const std::string& name) { return registry[*registry.Find(name)]; };
  using kernels::Shape;
  const params::ParamSpec q = spec("layers.0.attention.q.weight");
  EXPECT_EQ(q.shape, (Shape{48, 24}));
  EXPECT_EQ(q.stored, (Shape{64, 24}));
  EXPECT_EQ(q.Held(), (Shape{24, 24}));
  EXPECT_EQ(q.begin[0], 24);
  EXPECT_EQ(spec("layers.0.attention.k.bias").stored, (Shape{32}));
  EXPECT_EQ(spec("layers.0.attention.k.bias").begin[0], 12);
  const params::ParamSpec out = spec("layers.0.attention.out.weight");
  EXPECT_EQ(out.stored, (Shape{24, 64}));
  EXPECT_EQ(out.Held(), (Shape{24, 24}));
  EXPECT_EQ(out.begin[1], 24);
  EXPECT_EQ(spec("layers.0.attention.q_norm.weight").shape, (Shape{6}));
  EXPECT_EQ(spec("layers.0.attention.q_norm.weight").stored, (Shape{16}));
  EXPECT_FALSE(spec("layers.0.ffn.up.weight").units.has_value());
  GptConfig plain = config;
  plain.stored_head_dim = 0;
  params::Registry unpadded;
  Stage(plain, {.num_layers = config.layers}).Register(&unpadded);
  EXPECT_EQ(registry.NumElements(), unpadded.NumElements());
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

// Whatever is recomputed; what is kept is the other ranks' rows of two norms' outputs a layer.
TEST(TensorParallel, KeptInputsGiveTheBitsOfThoseGatheredAgain) {
  for (GptConfig config : {GptLike(), LlamaLike()}) {
    config.layers = 4;
    const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
    for (const bool parallel_residual : {false, true}) {
      for (const RecomputeMode mode :
           {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
        config.parallel_residual = parallel_residual;
        config.recompute = {.mode = mode, .method = RecomputeMethod::kBlock, .layers = 1};
        const MeshLayout layout = {
            .tp = 2, .sequence_parallel = true, .layers = {2, 2}, .stages = 2};
        config.keep_inputs = false;
        const MeshResult again = RunMesh(config, layout, batches);
        config.keep_inputs = true;
        const MeshResult kept = RunMesh(config, layout, batches);
        EXPECT_EQ(kept.sums.loss, again.sums.loss);
        EXPECT_EQ(kept.evaluation.loss, again.evaluation.loss);
        EXPECT_EQ(kept.grad_bytes, again.grad_bytes);
        int64_t layers = mode == RecomputeMode::kSelective ? 0 : 2;
        if (mode == RecomputeMode::kFull) --layers;
        const int64_t norms = parallel_residual ? 1 : 2;
        EXPECT_EQ(kept.kept_bytes[0] - again.kept_bytes[0],
                  2 * layers * norms * 8 * config.tokens() / 2 * config.hidden);
      }
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
