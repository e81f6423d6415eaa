// The memory formulas against sums by hand and against figures of published models.
// tests/worker/memory compares them with what the engine plans.
#include "common/spec/memory_formula.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

RankMemory Memory(const std::vector<std::string>& overrides, int stage = 0,
                  const std::vector<int>& slots = {1}) {
  const Loaded loaded = LoadOnCpu(overrides);
  EXPECT_EQ(FormatFaults(loaded.faults), "");
  return loaded.faults.empty() ? MemoryOf(loaded.job, stage, slots) : RankMemory();
}

// 2 layers, h 64, 4 heads, s 32, b 4 (T = 128), byte tokens (257, stored as 384), 2 replicas, hence
// buckets in multiples of 2,048 elements.
TEST(MemoryFormula, ASmallModelByHand) {
  const RankMemory memory = Memory({});
  constexpr int64_t kMatrices = 2 * 12 * 64 * 64;
  constexpr int64_t kWords = 384 * 64;
  // Column-parallel biases 192 and 256 per layer, row-parallel biases and norms 14 x 64, each
  // aligned to 128 elements; positions 32 x 64. Each group fills one bucket unit.
  EXPECT_EQ(memory.parameters, kMatrices + kWords + 3 * 2048);
  EXPECT_EQ(memory.weights, 4 * memory.parameters);
  EXPECT_EQ(memory.gradients, 4 * memory.parameters);
  EXPECT_EQ(memory.optimizer, 8 * memory.parameters);
  constexpr int64_t kLayer = 16 * 4 * 128 * 64 + 4 * (4 * 128 + 4 * 128);
  EXPECT_EQ(memory.activations, 2 * kLayer + 4 * 128 * 64);
  EXPECT_EQ(memory.total(),
            memory.weights + memory.gradients + memory.optimizer + memory.activations);
  EXPECT_EQ(Memory({}, 0, {3}).activations, 3 * memory.activations);
}

// The same model, read: its weights once, and keys and values of 2 layers, 4 heads of 16.
TEST(MemoryFormula, AReaderOfIt) {
  const Loaded trained = LoadOnCpu();
  ASSERT_EQ(FormatFaults(trained.faults), "");
  const auto of = [&](std::vector<std::string> overrides) {
    constexpr std::string_view kReader =
        "{name: r, kind: generate, read: {checkpoint: demo}, generate: {prompts: [abc, abcdefgh], "
        "tokens: 12}}";
    megatrain::v1::JobSpec reader;
    EXPECT_EQ(FormatFaults(LoadJob(kReader, overrides, {}, &reader)), "");
    return MemoryOfReader(reader, trained.job);
  };
  const int64_t parameters = ParameterCount(trained.job.model());
  const RankMemory two = of({});
  EXPECT_EQ(two.parameters, parameters);
  EXPECT_EQ(two.weights, 4 * parameters);
  constexpr int64_t kPosition = 2 * 2 * 4 * 16 * 4;
  EXPECT_EQ(two.activations, kPosition * (8 + 12) * 2);
  EXPECT_EQ(two.total(), two.weights + two.activations);
  EXPECT_EQ(of({"generate.tokens=1000"}).activations, kPosition * 32 * 2) << "all positions";
  EXPECT_EQ(of({"generate.temperature=1", "generate.samples=100"}).activations,
            kPosition * (8 + 12) * 8)
      << "eight side by side";
  EXPECT_EQ(of({"read.precision=bf16"}).weights, 2 * parameters);
  EXPECT_EQ(of({"read.precision=fp64"}).weights, 8 * parameters);
  const RankMemory scores =
      of({"kind=eval", "generate=", "eval.file=tasks.yaml", "placement.device=cpu"});
  EXPECT_EQ(scores.activations, kPosition * 32);
}

// Bytes per local parameter by precision and ZeRO stage.
TEST(MemoryFormula, BytesPerParameter) {
  struct Row {
    const char* precision;
    int64_t weights, gradients, state;
  };
  for (const Row& row : {Row{"bf16", 2, 4, 12}, Row{"fp16", 2, 4, 12}, Row{"fp32", 4, 4, 8},
                         Row{"fp64", 8, 8, 16}}) {
    SCOPED_TRACE(row.precision);
    const std::string precision = std::string("training.precision=") + row.precision;
    const RankMemory whole = Memory({precision, "parallel.zero_stage=0"});
    EXPECT_EQ(whole.weights, row.weights * whole.parameters);
    EXPECT_EQ(whole.gradients, row.gradients * whole.parameters);
    EXPECT_EQ(whole.optimizer, row.state * whole.parameters);
    const RankMemory cut = Memory({precision, "parallel.zero_stage=1"});
    EXPECT_EQ(cut.weights, whole.weights);
    EXPECT_EQ(cut.gradients, whole.gradients);
    EXPECT_EQ(cut.optimizer, whole.optimizer / 2);
  }
}

// Keys and values of 2 layers and 64 channels; rows of 128 tokens: three of h, queries and what is
// attended, keys and values, both sides of the activation; logits of eight rows.
TEST(MemoryFormula, PromptsOfEvaluations) {
  EXPECT_EQ(Memory({}).prompts, 0);
  const auto with = [](const std::string& prompts) {
    return Memory({"training.eval.every_iters=5", "training.eval.prompt_tokens=10", prompts});
  };
  const RankMemory two = with("training.eval.prompts=[abc, ab]");
  constexpr int64_t kRows = 128 * (3 * 64 + 2 * 64 + 2 * 64 + 2 * 256);
  constexpr int64_t kPosition = 2 * 2 * 64;
  EXPECT_EQ(two.prompts, 4 * (kPosition * 13 * 2 + kRows) + 4 * 8 * 384);
  EXPECT_EQ(two.total(), Memory({}).total() + two.prompts);
  const RankMemory long_one = with("training.eval.prompts=[" + std::string(40, 'a') + "]");
  EXPECT_EQ(long_one.prompts, 4 * (kPosition * 32 + kRows) + 4 * 8 * 384) << "all positions";
}

// Eight texts, as long as may be asked for, or as the prompts are where those are longer.
TEST(MemoryFormula, TextsThatAreAskedFor) {
  constexpr int64_t kRows = 128 * (3 * 64 + 2 * 64 + 2 * 64 + 2 * 256);
  constexpr int64_t kPosition = 2 * 2 * 64;
  const RankMemory asked = Memory({"training.eval.decode_tokens=20"});
  EXPECT_EQ(asked.prompts, 4 * (kPosition * 20 * 8 + kRows) + 4 * 8 * 384);
  const std::string prompts =
      "training.eval={decode_tokens: 20, every_iters: 5, prompts: [abc], prompt_tokens: ";
  EXPECT_EQ(Memory({prompts + "10}"}).prompts, asked.prompts);
  EXPECT_EQ(Memory({prompts + "25}"}).prompts, asked.prompts + 4 * kPosition * 8 * 8);
}

// A stage keeps keys and values of its own layers.
TEST(MemoryFormula, PromptsOfAStage) {
  const Loaded loaded =
      LoadOnCpu({"model.layers=3", "parallel.pipeline=2", "parallel.data=1",
                 "parallel.layout=\"Ett|tL\"", "training.eval.every_iters=5",
                 "training.eval.prompt_tokens=10", "training.eval.prompts=[abc]"});
  ASSERT_EQ(FormatFaults(loaded.faults), "");
  constexpr int64_t kLayer = 4 * 2 * 64 * 13;
  EXPECT_EQ(PromptMemoryOf(loaded.job, 0) - PromptMemoryOf(loaded.job, 1), kLayer);
  for (const int stage : {0, 1}) {
    const std::vector<int> slots = {1};
    EXPECT_EQ(PromptMemoryOf(loaded.job, stage), MemoryOf(loaded.job, stage, slots).prompts);
  }
}

TEST(MemoryFormula, SgdKeepsOneMomentOrNone) {
  const RankMemory momentum = Memory({"optimizer.type=sgd", "optimizer.momentum=0.9"});
  EXPECT_EQ(momentum.optimizer, 4 * momentum.parameters);
  EXPECT_EQ(Memory({"optimizer.type=sgd", "optimizer.momentum=0"}).optimizer, 0);
}

// 16 e T h / t bytes are kept by a layer of GPT-2 under sequence parallelism, 10 e T h / t where
// outputs of norms and of the activation are recomputed, e R h where the whole layer is
// (worker/model/README.md, "Recomputation").
TEST(MemoryFormula, ActivationsPerLayer) {
  const auto layer = [](std::vector<std::string> overrides) {
    overrides.emplace_back("model.layers=4");
    const int64_t four = Memory(overrides).activations;
    overrides.back() = "model.layers=8";
    return (Memory(overrides).activations - four) / 4;
  };
  constexpr int64_t kUnit = 4 * 128 * 64;  // e T h
  constexpr int64_t kStatistics =
      4 * (8 * 128);  // log-sum-exp of 4 heads, mean and rstd of 2 norms
  const std::string tp2 = "parallel.tensor=2";
  EXPECT_EQ(layer({}), 16 * kUnit + kStatistics);
  EXPECT_EQ(layer({tp2}), 8 * kUnit + kStatistics / 2);
  EXPECT_EQ(layer({tp2, "parallel.sequence_parallel=false"}),
            4 * kUnit + 6 * kUnit + 4 * (2 * 128 + 4 * 128));
  EXPECT_EQ(layer({"training.recompute.mode=selective"}), 10 * kUnit + kStatistics);
  EXPECT_EQ(layer({tp2, "training.recompute.mode=selective"}), 5 * kUnit + kStatistics / 2);
  EXPECT_EQ(layer({"training.recompute.mode=full"}), kUnit);
  EXPECT_EQ(layer({"training.recompute.mode=full", "training.recompute.layers=2"}), kUnit / 2);
  // Method block: only the first layer of the chunk is recomputed.
  EXPECT_EQ(layer({"training.recompute.mode=full", "training.recompute.method=block"}),
            16 * kUnit + kStatistics);
  // Keys and values of one head instead of four; gate and up; a single residual norm; RMSNorm
  // without means.
  EXPECT_EQ(layer({"model.kv_heads=1"}), 16 * kUnit - 2 * kUnit * 3 / 4 + kStatistics);
  EXPECT_EQ(layer({"model.activation=swiglu", "model.ffn_size=256"}), 20 * kUnit + kStatistics);
  EXPECT_EQ(layer({"model.parallel_residual=true"}), 14 * kUnit + kStatistics - 4 * 2 * 128);
  EXPECT_EQ(layer({"model.norm=rmsnorm"}), 16 * kUnit + kStatistics - 4 * 2 * 128);
  EXPECT_EQ(layer({"model.qk_norm=true"}), 18 * kUnit + kStatistics + 4 * 8 * 128);
}

// Of each norm of a layer that keeps its output, the other ranks' rows.
TEST(MemoryFormula, GatheredInputsPerLayer) {
  const auto gathered = [](std::vector<std::string> overrides) {
    overrides.emplace_back("model.layers=4");
    return Memory(overrides).gathered_inputs;
  };
  constexpr int64_t kUnit = 4 * 128 * 64;  // e T h
  const std::string tp2 = "parallel.tensor=2";
  EXPECT_EQ(gathered({}), 0);
  EXPECT_EQ(gathered({tp2}), 4 * 2 * kUnit / 2);
  EXPECT_EQ(gathered({"parallel.tensor=4"}), 4 * 2 * kUnit * 3 / 4);
  EXPECT_EQ(gathered({tp2, "parallel.sequence_parallel=false"}), 0);
  EXPECT_EQ(gathered({tp2, "model.parallel_residual=true"}), 4 * kUnit / 2);
  EXPECT_EQ(gathered({tp2, "training.recompute.mode=selective"}), 0);
  EXPECT_EQ(gathered({tp2, "training.recompute.mode=full"}), 0);
  EXPECT_EQ(gathered({tp2, "training.recompute.mode=full", "training.recompute.method=block"}),
            3 * 2 * kUnit / 2);
  EXPECT_EQ(Memory({tp2}, 0, {3}).gathered_inputs, 3 * Memory({tp2}).gathered_inputs);
  EXPECT_EQ(Memory({tp2}).total(), Memory({tp2}).weights + Memory({tp2}).gradients +
                                       Memory({tp2}).optimizer + Memory({tp2}).activations);
}

// The other ranks' terms of [T, h], of 64 MiB at most each; of GPUs alone.
TEST(MemoryFormula, TermsOfTensorSumsOnGpus) {
  const auto sums = [](const std::vector<std::string>& overrides, bool on_gpu = true) {
    Loaded loaded = LoadOnCpu(overrides);
    EXPECT_EQ(FormatFaults(loaded.faults), "");
    if (on_gpu) loaded.job.mutable_placement()->set_device(megatrain::v1::Placement::DEVICE_GPU);
    return MemoryOf(loaded.job, 0, std::vector<int>{1}).tensor_sums;
  };
  constexpr int64_t kUnit = 4 * 128 * 64;  // e T h
  EXPECT_EQ(sums({"parallel.tensor=2"}, false), 0);
  EXPECT_EQ(sums({}), 0);
  EXPECT_EQ(sums({"parallel.tensor=2"}), kUnit / 2);
  EXPECT_EQ(sums({"parallel.tensor=4"}), kUnit / 4 * 3);
  EXPECT_EQ(sums({"parallel.tensor=2", "model.seq_length=1048576"}), int64_t{64} << 20);
  EXPECT_EQ(sums({"parallel.tensor=8", "model.heads=16"}), kUnit / 8 * 7);
  EXPECT_EQ(sums({"parallel.tensor=16", "model.heads=16"}), 0) << "too many for copies";
}

TEST(MemoryFormula, StagesHoldTheirLayersAndEnds) {
  const std::vector<std::string> four = {"model.layers=4", "parallel.pipeline=4",
                                         "parallel.data=1"};
  constexpr int64_t kUnit = 4 * 128 * 64;
  constexpr int64_t kLayer = 16 * kUnit + 4 * 8 * 128;
  // The output and its gradient; on inner stages also the input's gradient; on the last stage that
  // and the head's.
  EXPECT_EQ(Memory(four, 0, {4}).activations, 4 * (kLayer + 2 * kUnit));
  EXPECT_EQ(Memory(four, 1, {3}).activations, 3 * (kLayer + 3 * kUnit));
  EXPECT_EQ(Memory(four, 3, {1}).activations, kLayer + 2 * kUnit);
  // One layer, with vectors of two units; the embedding table on both ends, positions on the first.
  EXPECT_EQ(Memory(four, 1).parameters, 12 * 64 * 64 + 2 * 1024);
  EXPECT_EQ(Memory(four, 0).parameters, 12 * 64 * 64 + 384 * 64 + 2 * 1024 + 2048);
  EXPECT_EQ(Memory(four, 3).parameters, 12 * 64 * 64 + 384 * 64 + 2 * 1024);
}

TEST(MemoryFormula, ChunksAreAddedUp) {
  const std::vector<std::string> ring = {"model.layers=4", "parallel.pipeline=2",
                                         "parallel.virtual_stages=2", "parallel.data=1"};
  constexpr int64_t kUnit = 4 * 128 * 64;
  constexpr int64_t kLayer = 16 * kUnit + 4 * 8 * 128;
  EXPECT_EQ(Memory(ring, 0, {4, 2}).activations,
            4 * (kLayer + 2 * kUnit) + 2 * (kLayer + 3 * kUnit));
}

// Chunks without layers: the two ends of the model alone, and one that only passes its input on.
TEST(MemoryFormula, ChunksWithoutLayersKeepTheirBorders) {
  const std::vector<std::string> ends = {"model.layers=2", "parallel.pipeline=4", "parallel.data=1",
                                         "parallel.layout=\"E|tt||L\""};
  constexpr int64_t kUnit = 4 * 128 * 64;
  EXPECT_EQ(Memory(ends, 0).activations, 2 * kUnit);  // output and its gradient
  EXPECT_EQ(Memory(ends, 2).activations,
            2 * kUnit);  // input and its gradient, which are also the output and its gradient
  EXPECT_EQ(Memory(ends, 3).activations, 2 * kUnit);  // input and the head's gradient
  EXPECT_EQ(Memory(ends, 2).parameters, 0);
}

// 13B on 8 replicas with ZeRO-1 and 4,096 tokens: 25.7 + 51.4 + 19.3 + 27 GB. 6.7B on one rank: 18
// bytes for each of 6.65e9 parameters, and 17 GB.
TEST(MemoryFormula, PublishedModels) {
  const std::vector<std::string> big = {"model={preset: gpt3-13b, vocab_size: 50257}",
                                        "training.micro_batch_size=2", "training.precision=bf16",
                                        "parallel.zero_stage=1", "parallel.data=8"};
  const RankMemory memory = Memory(big);
  EXPECT_NEAR(static_cast<double>(memory.weights), 25.7e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(memory.gradients), 51.4e9, 0.2e9);
  EXPECT_NEAR(static_cast<double>(memory.optimizer), 19.3e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(memory.activations), 27e9, 0.3e9);
  const RankMemory alone =
      Memory({"model={preset: gpt3-6.7b, vocab_size: 50257}", "training.micro_batch_size=2",
              "training.precision=bf16", "parallel.data=1"});
  EXPECT_NEAR(static_cast<double>(alone.parameters), 6.65e9, 0.02e9);
  EXPECT_EQ(alone.weights + alone.gradients + alone.optimizer, 18 * alone.parameters);
  EXPECT_NEAR(static_cast<double>(alone.activations), 17.2e9, 0.2e9);
}

}  // namespace
}  // namespace mt::spec
