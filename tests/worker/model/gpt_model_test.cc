// What GptModel promises apart from correct gradients: first loss, padding, evaluation, chunks,
// order of buckets, memory.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "tests/worker/model/model_rig.h"
#include "worker/model/dropout_site.h"

namespace mt::model {
namespace {

GptConfig WithDropout(GptConfig config) {
  config.hidden_dropout = 0.1;
  config.attention_dropout = 0.1;
  return config;
}

TEST(GptModel, FirstLossIsLnOfTheUnpaddedVocabulary) {
  GptConfig config = SmallConfig();
  config.padded_vocab = 256;  // ln(256 / 97) = 0.97 would be seen
  ModelRig rig(config);
  const data::Microbatch batch = RandomBatch(config, 1, 0);
  rig.Evaluate(batch);
  Sums sums = rig.TakeSums();
  EXPECT_EQ(sums.weight, batch.weight_sum);
  // Initial logits are noise of standard deviation 0.02 sqrt(hidden) around 0.
  EXPECT_NEAR(sums.loss / sums.weight, std::log(97.0), 0.03);

  const auto table = rig.IdOf("embedding.word.weight");
  rig.SetWeight(table, std::vector<double>(rig.Weight(table).size(), 0.0));
  rig.Evaluate(batch);
  sums = rig.TakeSums();
  EXPECT_NEAR(sums.loss / sums.weight, std::log(97.0), 1e-14);
}

TEST(GptModel, PaddedRowsHaveNoGradient) {
  GptConfig config = WithDropout(SmallConfig());
  for (const kernels::DType dtype : {kernels::DType::kF32, kernels::DType::kF64}) {
    config.dtype = dtype;
    ModelRig rig(config);
    rig.Run(RandomBatch(config, 2, 0));
    const std::vector<double> gradient = rig.Grad(rig.IdOf("embedding.word.weight"));
    const auto real = static_cast<size_t>(config.vocab * config.hidden);
    ASSERT_EQ(gradient.size(), static_cast<size_t>(config.padded_vocab * config.hidden));
    for (size_t i = 0; i < real; ++i) ASSERT_NE(gradient[i], 0.0) << i;
    for (size_t i = real; i < gradient.size(); ++i) ASSERT_EQ(gradient[i], 0.0) << i;
  }
}

TEST(GptModel, EvaluationIsTheForwardWithoutDropoutAndWritesNoGradient) {
  const GptConfig config = SmallConfig();
  const data::Microbatch batch = RandomBatch(config, 3, 0);
  ModelRig plain(config);
  plain.Run(batch);
  const Sums want = plain.TakeSums();

  ModelRig rig(WithDropout(config));
  rig.Run(batch);
  EXPECT_GT(std::abs(rig.TakeSums().loss - want.loss), 1e-6 * want.loss);
  const std::vector<uint8_t> gradients = rig.GradBytes();
  rig.Evaluate(batch);
  const Sums got = rig.TakeSums();
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(got.weight, want.weight);
  EXPECT_EQ(rig.GradBytes(), gradients);
}

TEST(GptModel, DropoutFollowsTheSampleNumberOnly) {
  const GptConfig config = WithDropout(SmallConfig());
  ModelRig rig(config);
  data::Microbatch batch = RandomBatch(config, 4, 10);
  rig.Run(batch);
  const double first = rig.TakeSums().loss;
  batch.samples = {500, 501};
  rig.Run(batch);
  EXPECT_NE(rig.TakeSums().loss, first);
  batch.samples = {10, 11};
  rig.Run(batch, kernels::GradMode::kAdd);
  EXPECT_EQ(rig.TakeSums().loss, first);
}

// The names are what makes a run the same in every layout.
TEST(GptModel, DropoutSitesAreKeyedByNameAndSeed) {
  EXPECT_EQ(MakeDropoutSite(0.5, 0, Site::kEmbedding, 7).key,
            base::Hash64("dropout/0/embedding", 7));
  EXPECT_EQ(MakeDropoutSite(0.5, 3, Site::kProbabilities, 7).key,
            base::Hash64("dropout/3/probabilities", 7));
  EXPECT_EQ(MakeDropoutSite(0.5, 12, Site::kAttention, 8).key,
            base::Hash64("dropout/12/attention", 8));
  EXPECT_EQ(MakeDropoutSite(0.5, 12, Site::kFfn, 8).key, base::Hash64("dropout/12/ffn", 8));
  EXPECT_EQ(MakeDropoutSite(0.1, 0, Site::kFfn, 7).rate.threshold, 6554U);
}

TEST(GptModel, HeadChunksDoNotChangeTheResult) {
  GptConfig config = WithDropout(SmallConfig());
  const data::Microbatch batch = RandomBatch(config, 5, 0);
  config.head_chunk_tokens = config.tokens();
  ModelRig whole(config);
  whole.Run(batch);
  const Sums want = whole.TakeSums();
  for (const int64_t chunk : {1, 7, 16, 20}) {
    config.head_chunk_tokens = chunk;
    ModelRig rig(config);
    rig.Run(batch);
    EXPECT_NEAR(rig.TakeSums().loss, want.loss, 1e-15 * want.loss) << chunk;
    for (const params::ParamId id : whole.Ids()) {
      const std::vector<double> gradient = whole.Grad(id);
      EXPECT_LE(Distance(rig.Grad(id), gradient), 1e-15 * Norm(gradient) + 1e-17)
          << chunk << " " << whole.NameOf(id);
    }
  }
}

TEST(GptModel, TheSameRunTwiceIsBitEqual) {
  GptConfig config = WithDropout(SmallConfig());
  config.dtype = kernels::DType::kF32;
  const data::Microbatch first = RandomBatch(config, 6, 0);
  const data::Microbatch second = RandomBatch(config, 7, 2);
  std::vector<uint8_t> gradients;
  Sums sums;
  for (int run = 0; run < 2; ++run) {
    ModelRig rig(config, {.threads = 2});
    rig.Run(first, kernels::GradMode::kOverwrite, /*last=*/false);
    rig.Run(second, kernels::GradMode::kAdd);
    const Sums got = rig.TakeSums();
    if (run == 0) {
      gradients = rig.GradBytes();
      sums = got;
      continue;
    }
    EXPECT_EQ(rig.GradBytes(), gradients);
    EXPECT_EQ(got.loss, sums.loss);
  }
}

TEST(GptModel, BucketsAreReadyOnceCompleteAndInTheSameOrder) {
  const GptConfig config = WithDropout(SmallConfig());
  ModelRig rig(config);
  const int buckets = rig.layout().num_buckets();
  ASSERT_GT(buckets, 6);
  std::vector<int> order;
  std::vector<std::vector<uint8_t>> at_ready(static_cast<size_t>(buckets));
  const auto bucket_bytes = [&](int bucket) {
    const params::Bucket& b = rig.layout().bucket(bucket);
    const auto* data = static_cast<const uint8_t*>(
        params::ParamStore::Cut(rig.store().grads(), {.begin = b.begin, .count = b.count}).data);
    return std::vector<uint8_t>(data, data + b.count * 8);
  };
  rig.model().SetHooks({.on_bucket_ready = [&](int bucket) {
    order.push_back(bucket);
    at_ready[static_cast<size_t>(bucket)] = bucket_bytes(bucket);
  }});
  rig.Run(RandomBatch(config, 8, 0), kernels::GradMode::kOverwrite, /*last=*/false);
  EXPECT_TRUE(order.empty());
  rig.Run(RandomBatch(config, 9, 2), kernels::GradMode::kAdd);
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> all(static_cast<size_t>(buckets));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  for (int i = 0; i < buckets; ++i) {
    EXPECT_EQ(at_ready[static_cast<size_t>(i)], bucket_bytes(i)) << "written after ready: " << i;
  }
  // Layer by layer from the last to the first; the tables wait for the embedding.
  std::vector<int> layers;
  for (const int bucket : order) {
    const params::Bucket& b = rig.layout().bucket(bucket);
    if (b.region == params::Region::kMatrix) layers.push_back(rig.registry()[b.params[0]].layer);
  }
  EXPECT_TRUE(std::is_sorted(layers.rbegin(), layers.rend()));
  EXPECT_EQ(layers.front(), 1);
  const auto region = [&](size_t from_end) {
    return rig.layout().bucket(order[order.size() - from_end]).region;
  };
  EXPECT_EQ(region(2), params::Region::kWordEmbedding);
  EXPECT_EQ(region(1), params::Region::kPositionTable);
  const std::vector<int> first_order = std::exchange(order, {});
  rig.Run(RandomBatch(config, 10, 4));
  EXPECT_EQ(order, first_order);
}

TEST(GptModel, PhasesAreReportedInOrder) {
  const GptConfig config = SmallConfig();
  ModelRig rig(config);
  std::vector<Phase> phases;
  rig.model().SetHooks({.on_phase = [&](Phase phase) { phases.push_back(phase); }});
  rig.Run(RandomBatch(config, 11, 0));
  EXPECT_EQ(phases, (std::vector<Phase>{Phase::kForwardBegin, Phase::kForwardEnd,
                                        Phase::kBackwardBegin, Phase::kBackwardEnd}));
}

// 16 e T h + statistics a layer, with attention and ffn widths of their own, and the head's dx.
TEST(GptModel, KeepsWhatTheDesignLists) {
  GptConfig config = SmallConfig();
  config.layers = 3;
  const ModelRig rig(config);
  const int64_t tokens = config.tokens(), e = 8, w = 8;
  const int64_t q = config.heads * config.head_dim;
  const int64_t layer =
      e * tokens * (4 * config.hidden + 4 * q + 2 * config.ffn) + w * tokens * (config.heads + 4);
  const int64_t want = config.layers * layer + e * tokens * config.hidden;
  const int64_t got = rig.memory().Report()[static_cast<size_t>(memory::Kind::kActivations)];
  constexpr int64_t tensors_per_layer = 13;
  EXPECT_GE(got, want);
  EXPECT_LE(got, want + (config.layers * tensors_per_layer + 1) * memory::kAlignBytes);
}

TEST(GptModel, DeclaresInitialValuesAsMegatron) {
  GptConfig config = SmallConfig();
  config.init_std = 0.5;
  const ModelRig rig(config);
  const auto std_of = [&](const char* name) { return rig.registry()[rig.IdOf(name)].std; };
  EXPECT_EQ(std_of("embedding.word.weight"), 0.5);
  EXPECT_EQ(std_of("embedding.position.weight"), 0.5);
  EXPECT_EQ(std_of("layers.1.attention.k.weight"), 0.5);
  EXPECT_EQ(std_of("layers.1.ffn.up.weight"), 0.5);
  EXPECT_EQ(std_of("layers.1.attention.out.weight"), 0.25);  // 0.5 / sqrt(2 x 2 layers)
  EXPECT_EQ(std_of("layers.1.ffn.down.weight"), 0.25);
  for (const params::ParamId id : rig.Ids()) {
    const params::ParamSpec& spec = rig.registry()[id];
    EXPECT_EQ(spec.decay, params::DecaysByMegatronRule(spec.name, spec.shape)) << spec.name;
  }
  for (const double x : rig.Weight(rig.IdOf("layers.0.norm1.weight"))) {
    EXPECT_EQ(x, 1.0);
  }
}

}  // namespace
}  // namespace mt::model
