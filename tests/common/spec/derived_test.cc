// Sizes, lengths and FLOPs that follow from a job; goldens of Megatron-LM's own functions.
#include "common/spec/derived.h"

#include <cmath>

#include <gtest/gtest.h>

#include "common/spec/number.h"
#include "common/spec/presets.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

// "gpt3-6.7b" -> 6.7e9; 0 where the name has no size.
double SizeInName(std::string_view name) {
  std::string size(name.substr(name.rfind('-') + 1));
  for (char& c : size) c = static_cast<char>(std::toupper(c));
  return static_cast<double>(ParseCount(size).value_or(0));
}

TEST(Presets, ParameterCountsMatchTheirNames) {
  int named = 0;
  for (const Preset& preset : Presets()) {
    Model model;
    ApplyPreset(preset, true, &model);
    ASSERT_EQ(model.hidden_size() % model.heads(), 0) << preset.name;
    const double expected = SizeInName(preset.name);
    if (expected == 0) continue;
    ++named;
    EXPECT_NEAR(static_cast<double>(ParameterCount(model)) / expected, 1, 0.03) << preset.name;
  }
  EXPECT_EQ(named, 22);
}

TEST(Presets, ExactCounts) {
  Model gpt2;
  ApplyPreset(*FindPreset("gpt2-124m"), true, &gpt2);
  EXPECT_EQ(ParameterCount(gpt2), 124'439'808);  // the published checkpoint
  Model xl;
  ApplyPreset(*FindPreset("gpt2-1558m"), true, &xl);
  EXPECT_EQ(ParameterCount(xl), 1'557'611'200);
  Model tiny;
  ApplyPreset(*FindPreset("tiny"), true, &tiny);
  EXPECT_FALSE(tiny.has_vocab_size());
  tiny.set_vocab_size(257);
  // 4 blocks of 12 h^2 + 13 h, the last norm, 257 + 64 rows.
  EXPECT_EQ(ParameterCount(tiny), 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128 + (257 + 64) * 128);
  EXPECT_EQ(FindPreset("gpt2-125m"), nullptr);
}

TEST(Presets, OtherFamiliesAreCountedToo) {
  // Llama 2 7B: 6,738,415,616 parameters.
  Model model;
  model.set_layers(32);
  model.set_hidden_size(4096);
  model.set_heads(32);
  model.set_ffn_size(11008);
  model.set_vocab_size(32000);
  model.set_seq_length(4096);
  model.set_norm(Model::NORM_RMSNORM);
  model.set_activation(Model::ACTIVATION_SWIGLU);
  model.set_position(Model::POSITION_ROPE);
  model.set_bias(false);
  model.set_tie_embeddings(false);
  EXPECT_EQ(ParameterCount(model), 6'738'415'616);
  model.clear_ffn_size();
  EXPECT_EQ(FfnSize(model), 8 * 4096 / 3 / 64 * 64);
}

Model Shape(int64_t layers, int64_t hidden, int64_t heads, int64_t seq) {
  Model model;
  model.set_layers(layers);
  model.set_hidden_size(hidden);
  model.set_heads(heads);
  model.set_seq_length(seq);
  return model;
}

TEST(Flops, MegatronGoldens) {
  EXPECT_EQ(FlopsPerSample(Shape(12, 768, 12, 1024), 50304), 817'184'636'928.0);
  EXPECT_EQ(FlopsPerSample(Shape(40, 5120, 40, 2048), 51200), 162'994'008'883'200.0);
  EXPECT_NEAR(1536 * FlopsPerSample(Shape(96, 12288, 96, 2048), 51200) / 3.34059780e18, 1, 1e-8);
  Model grouped = Shape(32, 4096, 32, 4096);
  grouped.set_ffn_size(14336);
  grouped.set_kv_heads(8);
  grouped.set_activation(Model::ACTIVATION_SWIGLU);
  EXPECT_EQ(FlopsPerSample(grouped, 32000), 187'939'178'938'368.0);
}

TEST(Flops, TwoNamesDifferByThePadding) {
  const Loaded loaded = Load({"model={preset: gpt2-124m}", "data={mock: true}"});
  ASSERT_EQ(FormatFaults(loaded.faults), "");
  const JobSpec& job = loaded.job;
  EXPECT_EQ(PaddedVocab(job), 50304);
  EXPECT_EQ(MegatronFlopsPerStep(job), 16 * 817'184'636'928.0);
  EXPECT_EQ(MegatronFlopsPerStep(job) - ModelFlopsPerStep(job),
            16.0 * 6 * 1024 * 768 * (50304 - 50257));
  EXPECT_EQ(ModelFlopsPerToken(job) * 1024 * 16, ModelFlopsPerStep(job));
  EXPECT_EQ(MegatronFlopsPerToken(job) * 1024, 817'184'636'928.0);
}

TEST(PaddedVocab, Goldens) {
  Model model;
  model.set_vocab_size(50257);
  EXPECT_EQ(PaddedVocab(model, 1), 50304);
  EXPECT_EQ(PaddedVocab(model, 2), 50432);
  EXPECT_EQ(PaddedVocab(model, 4), 50688);
  EXPECT_EQ(PaddedVocab(model, 8), 51200);
  model.set_vocab_divisible_by(1);
  EXPECT_EQ(PaddedVocab(model, 1), 50257);
}

TEST(Lengths, IterationsSamplesAndTokensAgree) {
  // Global batch 16, sequence 32.
  const std::vector<std::vector<std::string>> runs = {
      {"training.train_iters=100", "optimizer.warmup=10", "optimizer.decay_over=80"},
      {"training.train_iters=", "training.train_samples=1600", "optimizer.warmup=160",
       "optimizer.decay_over=1280"},
      {"training.train_iters=", "training.train_samples=1615", "optimizer.warmup=10%",
       "optimizer.decay_over=80%"},
      {"training.train_iters=", "training.train_tokens=51200", "optimizer.warmup=5120",
       "optimizer.decay_over=40960"},
      {"training.train_iters=", "training.train_tokens=51711", "optimizer.warmup=10%",
       "optimizer.decay_over=80%"}};
  for (const std::vector<std::string>& run : runs) {
    const Loaded loaded = Load(run);
    ASSERT_EQ(FormatFaults(loaded.faults), "");
    EXPECT_EQ(TotalIterations(loaded.job), 100);
    EXPECT_EQ(TotalSamples(loaded.job), 1600);
    EXPECT_EQ(WarmupSamples(loaded.job), 160);
    EXPECT_EQ(DecaySamples(loaded.job), 1280);
  }
}

TEST(Lengths, Percentages) {
  EXPECT_EQ(WarmupSamples(Load({"training.train_iters=1000", "optimizer.warmup=0.7%"}).job), 112);
  EXPECT_EQ(WarmupSamples(Load({"optimizer.warmup=33.3%"}).job), 532);  // 532.8, rounded down
  EXPECT_EQ(DecaySamples(Load({"training.train_iters=4294967296"}).job), 4294967296LL * 16);
}

TEST(Layout, Products) {
  const Loaded loaded = Load();
  EXPECT_EQ(WorldSize(loaded.job), 2);
  EXPECT_EQ(MicrobatchesPerStep(loaded.job), 2);
  EXPECT_EQ(TokensPerStep(loaded.job), 512);
}

TEST(Data, SourcesAndShares) {
  const Loaded path = Load({"data.split=\"9,1\"", "data.seed=7"});
  EXPECT_EQ(SplitShares(path.job), (std::vector<double>{9, 1, 0}));
  EXPECT_EQ(DataSources(path.job, Split::kValid).at(0).prefix, "text_document");
  EXPECT_EQ(DataSeed(path.job), 7u);
  const Loaded parts = Load({"data.path=", "data.train=[t]", "data.valid=[v]"});
  EXPECT_EQ(DataSources(parts.job, Split::kTrain).at(0).prefix, "t");
  EXPECT_EQ(DataSources(parts.job, Split::kValid).at(0).prefix, "v");
  EXPECT_TRUE(DataSources(parts.job, Split::kTest).empty());
  EXPECT_EQ(CheckpointDirectory(parts.job), "demo");
  EXPECT_FALSE(Ports(parts.job).has_value());
  JobSpec ranged = parts.job;
  ranged.mutable_placement()->set_ports("29500-29510");
  EXPECT_EQ(Ports(ranged)->first, 29500);
}

}  // namespace
}  // namespace mt::spec
