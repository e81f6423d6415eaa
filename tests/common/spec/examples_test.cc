// Every job file in deploy/examples is a valid job.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "common/spec/field_effects.h"
#include "tests/common/spec/job_text.h"
#include "tests/paths.h"

namespace mt::spec {
namespace {

Loaded LoadExample(const std::string& name) {
  Loaded out;
  out.faults =
      LoadJobFile(std::string(MT_SOURCE_DIR) + "/deploy/examples/" + name, {}, {}, &out.job);
  return out;
}

TEST(Examples, AllAreValid) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MT_SOURCE_DIR "/deploy/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const Loaded loaded = LoadExample(entry.path().filename());
    EXPECT_EQ(FormatFaults(loaded.faults), "") << entry.path();
    for (const FieldNote& note : FieldNotes(loaded.job))
      ADD_FAILURE() << entry.path() << ": " << note.path << ": " << note.text;
  }
  EXPECT_GE(count, 10);
}

// Parameters and tokens per step match the names under which tables of training speed list the
// files.
TEST(Examples, BenchmarksAreOfTheSizesTheyAreNamedAfter) {
  struct Row {
    const char* name;
    double parameters;
    int64_t tokens;
  };
  for (const Row& row : {Row{"bench-124m_s1024b32_gpu.yaml", 124e6, 32 * 1024},
                         Row{"bench-350m_s1024b64_gpu.yaml", 355e6, 64 * 1024},
                         Row{"bench-1558m_s1024b16_gpu.yaml", 1558e6, 16 * 1024},
                         Row{"bench-1.3b_s2048b8_gpu.yaml", 1315e6, 8 * 2048},
                         Row{"bench-tinyllama-1.1b_s2048b8_gpu.yaml", 1100e6, 8 * 2048}}) {
    const Loaded loaded = LoadExample(row.name);
    ASSERT_EQ(FormatFaults(loaded.faults), "") << row.name;
    EXPECT_EQ(loaded.job.kind(), megatrain::v1::JobSpec::KIND_BENCH) << row.name;
    EXPECT_NEAR(static_cast<double>(ParameterCount(loaded.job.model())) / row.parameters, 1, 0.005)
        << row.name;
    EXPECT_EQ(TokensPerStep(loaded.job), row.tokens) << row.name;
    EXPECT_EQ(MicrobatchesPerStep(loaded.job), 1) << row.name;
    EXPECT_EQ(TotalIterations(loaded.job), 60) << row.name;
  }
}

TEST(Examples, LlamaOnFourSlots) {
  const Loaded llama = LoadExample("llama-tiny_tp2pp2_cpu.yaml");
  ASSERT_EQ(FormatFaults(llama.faults), "");
  EXPECT_EQ(LayoutText(llama.job), "tp 2 x pp 2 x dp 1, sequence parallel, interleaved by 2");
  EXPECT_EQ(llama.job.placement().slots(), 4);
  EXPECT_EQ(llama.job.model().ffn_size(), 640);
  EXPECT_EQ(RampOf(llama.job).phases().size(), 3U);
  EXPECT_EQ(RampOf(llama.job).BatchOf(20'000'000 / 256), 32);
  EXPECT_LE(TotalSamples(llama.job), 100'000'000 / 256);
  EXPECT_GT(TotalSamples(llama.job), 100'000'000 / 256 - 32);
}

TEST(Examples, TokensBecomeWholeSteps) {
  const Loaded gpt2 = LoadExample("gpt2-124m_dp4_cpu.yaml");
  EXPECT_EQ(gpt2.job.model().vocab_size(), 50257);
  EXPECT_EQ(TotalIterations(gpt2.job), 2'500'000'000 / 1024 / 64);
  EXPECT_EQ(WarmupSamples(gpt2.job), 25'000'000 / 1024);
  const Loaded mock = LoadExample("mock-350m_dp1_cpu.yaml");
  EXPECT_EQ(mock.job.model().max_positions(), 512);
  EXPECT_EQ(CheckpointDirectory(mock.job), "");
  EXPECT_TRUE(DataSources(mock.job, Split::kTrain).empty());
}

}  // namespace
}  // namespace mt::spec
