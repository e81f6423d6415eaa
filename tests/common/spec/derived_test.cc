// Sizes, lengths and FLOPs that follow from a job; goldens from Megatron-LM's own functions.
#include "common/spec/derived.h"

#include <cmath>

#include <gtest/gtest.h>

#include "common/spec/number.h"
#include "common/spec/presets.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

// The parameter count in a preset's name, "gpt3-6.7b" -> 6.7e9; 0 where the name has none.
double SizeInName(std::string_view name) {
  std::string size(name.substr(name.rfind('-') + 1));
  for (char& c : size) c = static_cast<char>(std::toupper(c));
  return static_cast<double>(ParseCount(size).value_or(0));
}

Model Shape(int64_t layers, int64_t hidden, int64_t heads, int64_t seq) {
  Model model;
  model.set_layers(layers);
  model.set_hidden_size(hidden);
  model.set_heads(heads);
  model.set_seq_length(seq);
  return model;
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
    EXPECT_NEAR(static_cast<double>(ParameterCount(model)) / expected, 1, 0.04)
        << preset.name;  // "7b" is 6.74e9
  }
  EXPECT_EQ(named, 28);
}

TEST(Derived, HeadsAreStoredInSixteensOnGpus) {
  JobSpec job;
  for (const auto& [size, stored] :
       {std::pair<int64_t, int64_t>{64, 64}, {80, 80}, {100, 112}, {119, 128}, {160, 160}}) {
    job.mutable_model()->set_head_dim(size);
    job.mutable_placement()->set_device(megatrain::v1::Placement::DEVICE_CPU);
    EXPECT_EQ(StoredHeadDim(job), size);
    job.mutable_placement()->set_device(megatrain::v1::Placement::DEVICE_GPU);
    EXPECT_EQ(StoredHeadDim(job), stored);
    EXPECT_EQ(HeadDim(job.model()), size);
  }
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
  // 4 blocks of 12 h^2 + 13 h, the final norm, and 257 + 64 embedding rows.
  EXPECT_EQ(ParameterCount(tiny), 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128 + (257 + 64) * 128);
  EXPECT_EQ(FindPreset("gpt2-125m"), nullptr);
}

TEST(Presets, LlamaFamilyAsPublished) {
  const std::pair<const char*, int64_t> counts[] = {
      {"llama2-7b", 6'738'415'616},   {"llama2-13b", 13'015'864'320},
      {"llama2-70b", 68'976'648'192}, {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496}, {"tinyllama-1.1b", 1'100'048'384}};
  for (const auto& [name, count] : counts) {
    Model model;
    ApplyPreset(*FindPreset(name), true, &model);
    EXPECT_EQ(ParameterCount(model), count) << name;
    EXPECT_EQ(model.norm(), Model::NORM_RMSNORM) << name;
    EXPECT_EQ(model.activation(), Model::ACTIVATION_SWIGLU) << name;
    EXPECT_FALSE(model.bias() || model.tie_embeddings()) << name;
    EXPECT_EQ(model.rope().base(), std::string_view(name).starts_with("llama3") ? 500000 : 10000);
  }
}

TEST(Presets, OneTransformerPerVariant) {
  Model model = Shape(2, 64, 4, 32);
  model.set_vocab_size(100);
  const int64_t plain = ParameterCount(model);
  EXPECT_EQ(plain, 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + (100 + 32) * 64);
  model.set_qk_norm(true);
  EXPECT_EQ(ParameterCount(model), plain + 2 * 2 * 16);
  model.set_parallel_residual(true);
  EXPECT_EQ(ParameterCount(model), plain + 2 * 2 * 16 - 2 * 2 * 64);
  model.set_position(Model::POSITION_ALIBI);
  model.set_tie_embeddings(false);
  EXPECT_EQ(ParameterCount(model), plain + 2 * 2 * 16 - 2 * 2 * 64 - 32 * 64 + 100 * 64);
}

TEST(DerivedTimeouts, AreTheJobsOrTheDefaults) {
  JobSpec job;
  EXPECT_EQ(LoadTimeout(job), std::chrono::minutes(15));
  EXPECT_EQ(SaveTimeout(job), std::chrono::hours(1));
  EXPECT_EQ(CollectiveTimeout(job), std::chrono::minutes(10));
  auto& timeouts = *job.mutable_resilience()->mutable_timeouts();
  timeouts.set_load(1000);
  timeouts.set_checkpoint(2000);
  timeouts.set_collective(3000);
  EXPECT_EQ(LoadTimeout(job), std::chrono::seconds(1));
  EXPECT_EQ(SaveTimeout(job), std::chrono::seconds(2));
  EXPECT_EQ(CollectiveTimeout(job), std::chrono::seconds(3));
}

TEST(DerivedSizes, FollowMegatron) {
  Model model = Shape(1, 4096, 32, 32);
  EXPECT_EQ(FfnSize(model), 4 * 4096);
  EXPECT_EQ(HeadDim(model), 128);
  EXPECT_EQ(KvHeads(model), 32);
  EXPECT_EQ(MaxPositions(model), 32);
  for (const auto activation : {Model::ACTIVATION_SWIGLU, Model::ACTIVATION_GEGLU}) {
    model.set_activation(activation);
    EXPECT_EQ(FfnSize(model), 10880);  // int(8 * 4096 / 3 / 64) * 64
    model.set_hidden_size(768);
    EXPECT_EQ(FfnSize(model), 2048);
    model.set_hidden_size(4096);
  }
  const Loaded batch = Load({"training.global_batch_size=auto", "parallel.data=3"});
  EXPECT_EQ(batch.job.training().global_batch_size(), 4 * 3);  // micro batch times replicas
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

TEST(Flops, OneFigureInEveryLayout) {
  const std::vector<std::string> base = {"model={preset: gpt2-124m}", "data={mock: true}",
                                         "parallel.data=1"};
  const auto with = [&base](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return Load(more);
  };
  const JobSpec one = with({}).job;
  EXPECT_EQ(MegatronFlopsPerToken(one) * 1024, 817'184'636'928.0);
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"parallel.tensor=2"},
           {"parallel.tensor=4", "parallel.pipeline=2"},
           {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.data=2"},
           {"parallel.data=4", "parallel.zero_stage=1", "training.recompute.mode=full"}}) {
    const Loaded loaded = with(layout);
    ASSERT_EQ(FormatFaults(loaded.faults), "");
    EXPECT_EQ(ModelFlopsPerStep(loaded.job), ModelFlopsPerStep(one));
    EXPECT_EQ(ModelFlopsPerToken(loaded.job), ModelFlopsPerToken(one));
    EXPECT_EQ(MegatronFlopsPerStep(loaded.job),
              16 * FlopsPerSample(one.model(), PaddedVocab(loaded.job)));
  }
  EXPECT_EQ(PaddedVocab(with({"parallel.tensor=4"}).job), 50688);
  EXPECT_GT(MegatronFlopsPerStep(with({"parallel.tensor=4"}).job), MegatronFlopsPerStep(one));
}

TEST(Flops, AWindowShortensAttention) {
  const JobSpec whole = Load().job;
  EXPECT_EQ(ModelFlopsPerStep(Load({"model.window=32"}).job), ModelFlopsPerStep(whole));
  // 2 layers of width 64, 32 tokens, 16 samples. A window of 8 leaves 2 * 8 * 32 - 8 * 8 of 32^2
  // pairs.
  const JobSpec window = Load({"model.window=8"}).job;
  EXPECT_EQ(ModelFlopsPerStep(whole) - ModelFlopsPerStep(window),
            16.0 * 6 * 2 * 64 * (32 * 32 - 448));
  EXPECT_EQ(FullFlopsPerStep(window) - ModelFlopsPerStep(window), 16.0 * 6 * 2 * 64 * 448);
  EXPECT_EQ(MegatronFlopsPerStep(window), MegatronFlopsPerStep(whole));
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

TEST(Lengths, WithARamp) {
  // Steps of 8 samples up to 96 samples, of 16 up to 192, of 24 up to 304, then of 32 (Megatron's
  // golden).
  const std::vector<std::string> ramp = {"training.global_batch_size=32", "parallel.data=2",
                                         "training.batch_ramp=8,8,300"};
  const auto with = [&ramp](std::vector<std::string> more) {
    more.insert(more.begin(), ramp.begin(), ramp.end());
    const Loaded loaded = Load(more);
    EXPECT_EQ(FormatFaults(loaded.faults), "");
    return loaded.job;
  };
  const JobSpec iterations =
      with({"training.train_iters=100", "optimizer.warmup=13", "optimizer.decay_over=50",
            "optimizer.decay=wsd", "optimizer.wsd.over=10"});
  const BatchRamp sizes = RampOf(iterations);
  EXPECT_EQ(sizes.BatchOf(96), 8);
  EXPECT_EQ(sizes.BatchOf(104), 16);
  EXPECT_EQ(sizes.BatchOf(200), 24);
  EXPECT_EQ(sizes.BatchOf(320), 32);
  int64_t consumed = 0;
  for (int step = 0; step < 100; ++step) consumed += sizes.BatchOf(consumed);
  EXPECT_EQ(TotalIterations(iterations), 100);
  EXPECT_EQ(TotalSamples(iterations), consumed);
  EXPECT_EQ(WarmupSamples(iterations), 13 * 8);
  EXPECT_EQ(DecaySamples(iterations), sizes.SamplesAfter(50));
  EXPECT_EQ(WsdSamples(iterations), 10 * 32);
  EXPECT_EQ(Microbatches(iterations, sizes.BatchOf(0)), 1);
  EXPECT_EQ(MicrobatchesPerStep(iterations), 4);
  const JobSpec samples =
      with({"training.train_iters=", fmt::format("training.train_samples={}", consumed + 31)});
  EXPECT_EQ(TotalIterations(samples), 100);
  EXPECT_EQ(TotalSamples(samples), consumed);
  const JobSpec tokens =
      with({"training.train_iters=", fmt::format("training.train_tokens={}", consumed * 32)});
  EXPECT_EQ(TotalIterations(tokens), 100);
}

TEST(Layout, IsDataAndText) {
  const JobSpec job =
      Load({"parallel={tensor: 2, pipeline: 2, virtual_stages: 2, zero_stage: 1, data: 2}",
            "model.layers=8"})
          .job;
  EXPECT_EQ(MeshSizesOf(job), (layout::MeshSizes{.tp = 2, .dp = 2, .pp = 2}));
  EXPECT_EQ(LayerSplitOf(job).At(1, 1).first_layer, 6);
  EXPECT_EQ(LayoutText(job), "tp 2 x pp 2 x dp 2, sequence parallel, interleaved by 2, zero 1");
  EXPECT_EQ(
      LayoutText(
          Load({"parallel={pipeline: 2, schedule: gpipe, layout: \"2,3\"}", "model.layers=5"}).job),
      "tp 1 x pp 2 x dp 1, gpipe");
  EXPECT_EQ(LayoutText(Load().job), "tp 1 x pp 1 x dp 2");
  EXPECT_EQ(MeshText(job), "tp 2 x pp 2 x dp 2");
  EXPECT_EQ(MeshText(Load({"parallel.data=1"}).job), "");
  EXPECT_EQ(LayoutText(JobSpec()), "");
  EXPECT_EQ(MeshText(JobSpec()), "");
  EXPECT_EQ(RankPlaceText(job, 3), "tp 1, pp 0, dp 1");
  EXPECT_EQ(RankPlaceText(Load({"parallel={tensor: 2, data: 1}"}).job, 1), "tp 1");
  EXPECT_EQ(RankPlaceText(Load({"parallel.data=1"}).job, 0), "") << "one rank has no place to tell";
  EXPECT_EQ(RankPlaceText(job, 8), "");
  EXPECT_EQ(RankPlaceText(JobSpec(), 0), "");
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
  const Loaded blend = Load({"data.path=[2, a, 0.5, b]"});
  ASSERT_EQ(DataSources(blend.job, Split::kTrain).size(), 2U);
  EXPECT_EQ(DataSources(blend.job, Split::kValid).at(1).weight, 0.5);
  EXPECT_FALSE(DataSources(path.job, Split::kTrain).at(0).weight.has_value());
  EXPECT_EQ(DataSources(Load({"data.path={file: mix}"}).job, Split::kTrain).at(0).file, "mix");
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
