// A network divided into chunks, with several slots, gives the same result as a single chunk: the
// interface that pipeline schedules use.
#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/model/mesh_rig.h"

namespace mt::model {
namespace {

GptConfig FourLayers() {
  GptConfig config = GptLike();
  config.layers = 4;
  return config;
}

TEST(Stage, ThreeStagesGiveTheGradientsOfOne) {
  const GptConfig config = FourLayers();
  const std::vector<data::Microbatch> batches = RandomBatches(config, 3);
  const MeshResult want = RunMesh(config, {}, batches);
  ExpectSame(RunMesh(config, {.layers = {1, 2, 1}, .stages = 3}, batches), want);
  ExpectSame(RunMesh(config, {.layers = {1, 2, 1}, .stages = 3, .gpipe = false}, batches), want);
}

TEST(Stage, TwoStagesOfTwoChunksGiveTheGradientsOfOne) {
  const GptConfig config = FourLayers();
  const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
  ExpectSame(RunMesh(config, {.layers = {1, 1, 1, 1}, .stages = 2}, batches),
             RunMesh(config, {}, batches));
}

// Only the embedding, two layers, nothing at all, two layers, only the head.
TEST(Stage, ChunksMayHaveNoLayers) {
  for (const double dropout : {0.0, 0.1}) {
    GptConfig config = FourLayers();
    config.hidden_dropout = dropout;
    const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
    const MeshResult want = RunMesh(config, {}, batches);
    ExpectSame(RunMesh(config, {.layers = {0, 2, 0, 2, 0}, .stages = 5}, batches), want);
    ExpectSame(RunMesh(config, {.layers = {0, 2, 0, 2, 0, 0}, .stages = 2}, batches), want);
  }
}

TEST(Stage, AnUntiedHeadHasItsOwnMatrix) {
  GptConfig config = FourLayers();
  config.tie_embeddings = false;
  const std::vector<data::Microbatch> batches = RandomBatches(config, 2);
  const MeshResult want = RunMesh(config, {}, batches);
  ASSERT_TRUE(want.grads.contains("head.weight"));
  EXPECT_GT(Norm(want.grads.at("head.weight")), 0);
  ExpectSame(RunMesh(config, {.layers = {2, 2}, .stages = 2}, batches), want);
}

// Layers of every slot, and of output, its gradient, the input's and the head's what a stage has.
TEST(Stage, KeepsLayersAndBoundariesOfEverySlot) {
  const GptConfig config = FourLayers();
  const KeptFormula bytes(config);
  const MeshResult result =
      RunMesh(config, {.layers = {1, 2, 1}, .stages = 3}, RandomBatches(config, 3));
  const auto expect = [&](size_t stage, int64_t layers, int64_t boundaries) {
    const int64_t want = 3 * (layers * bytes.Layer() + boundaries * bytes.Residual());
    EXPECT_GE(result.kept_bytes[stage], want) << stage;
    EXPECT_LE(result.kept_bytes[stage], want + 3 * KeptFormula::Slack(layers + boundaries))
        << stage;
  };
  expect(0, 1, 2);
  expect(1, 2, 3);
  expect(2, 1, 2);
}

// Each chunk counts its own buckets, in the last of its microbatches, whatever the order of chunks.
TEST(Stage, EachChunkReportsItsBucketsOnce) {
  const GptConfig config = FourLayers();
  ModelRig rig(config,
               {.chunks = {{.place = {.num_layers = 1, .has_embedding = true}, .slots = 2},
                           {.place = {.chunk = 1, .first_layer = 2, .num_layers = 1}, .slots = 2}},
                .max_microbatches = 2});
  std::vector<int> ready;
  rig.model().SetHooks({.on_bucket_ready = [&](int bucket) { ready.push_back(bucket); }});
  const auto act = [&](bool forward, int chunk, int i) {
    const GptModel::StepArgs args =
        rig.StepArgs(i == 0 ? kernels::GradMode::kOverwrite : kernels::GradMode::kAdd, i == 1);
    if (forward) {
      rig.model().Forward(chunk, i, i, args);
    } else {
      rig.model().Backward(chunk, i, i, args);
    }
  };
  const auto chunks_of_ready = [&] {
    std::vector<int> chunks;
    for (const int bucket : ready) chunks.push_back(rig.layout().bucket(bucket).chunk);
    return chunks;
  };
  std::vector<int> of_chunk(2);
  for (const params::Bucket& bucket : rig.layout().buckets()) {
    ++of_chunk[static_cast<size_t>(bucket.chunk)];
  }
  for (int step = 0; step < 2; ++step) {
    ready.clear();
    for (int i = 0; i < 2; ++i)
      rig.model().LoadBatch(i, RandomBatches(config, 2)[static_cast<size_t>(i)]);
    for (const int chunk : {0, 1}) {
      for (const int i : {0, 1}) act(true, chunk, i);
    }
    act(false, 1, 0);
    act(false, 0, 0);
    EXPECT_TRUE(ready.empty());
    act(false, 1, 1);
    EXPECT_EQ(chunks_of_ready(), std::vector<int>(static_cast<size_t>(of_chunk[1]), 1));
    act(false, 0, 1);
    std::sort(ready.begin(), ready.end());
    std::vector<int> all(static_cast<size_t>(rig.layout().num_buckets()));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(ready, all);
  }
}

TEST(Stage, DeclaresChunksAndTheCopyOfATiedTable) {
  const GptConfig config = FourLayers();
  const ModelRig first(config,
                       {.chunks = {{.place = {.num_layers = 1, .has_embedding = true}},
                                   {.place = {.chunk = 1, .first_layer = 2, .num_layers = 1}}}});
  const ModelRig last(
      config,
      {.chunks = {
           {.place = {.stage = 1, .first_layer = 1, .num_layers = 1}},
           {.place = {
                .stage = 1, .chunk = 1, .first_layer = 3, .num_layers = 1, .has_head = true}}}});
  const auto spec = [](const ModelRig& rig, const char* name) {
    return rig.registry()[rig.IdOf(name)];
  };
  EXPECT_EQ(spec(first, "layers.0.norm1.weight").chunk, 0);
  EXPECT_EQ(spec(first, "layers.2.norm1.weight").chunk, 1);
  EXPECT_EQ(spec(last, "layers.3.ffn.down.weight").chunk, 1);
  EXPECT_EQ(spec(last, "final_norm.weight").chunk, 1);
  EXPECT_FALSE(spec(first, "embedding.word.weight").copy);
  EXPECT_TRUE(spec(last, "embedding.word.weight").copy);
  EXPECT_EQ(spec(last, "embedding.word.weight").chunk, 1);
  EXPECT_FALSE(first.registry().Find("final_norm.weight"));
  EXPECT_FALSE(last.registry().Find("embedding.position.weight"));
}

}  // namespace
}  // namespace mt::model
