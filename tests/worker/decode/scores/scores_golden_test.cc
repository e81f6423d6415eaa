// Scores against PyTorch's of the same network, and texts and windows against EleutherAI's harness
// (tests/golden/scores_torch.py).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/paths.h"
#include "tests/worker/decode/scores/byte_ids.h"
#include "tests/worker/model/golden_file.h"
#include "worker/decode/scores/run_task.h"
#include "worker/decode/scores/score_window.h"
#include "worker/decode/scores/scorer.h"
#include "worker/decode/scores/task_text.h"

namespace mt::decode {
namespace {

using nlohmann::json;

const json& Golden() {
  static const json golden = [] {
    std::ifstream file(MT_SOURCE_DIR "/tests/golden/scores.json");
    CHECK(file.good());
    return json::parse(file);
  }();
  return golden;
}

// The network of gpt2_torch.safetensors.
struct Network {
  explicit Network(kernels::DType dtype) {
    const model::GoldenFile file("gpt2_torch.safetensors");
    const model::GptConfig trained = {.layers = file.Size("layers"),
                                      .hidden = file.Size("hidden"),
                                      .heads = file.Size("heads"),
                                      .kv_heads = file.Size("heads"),
                                      .head_dim = file.Size("head_dim"),
                                      .ffn = file.Size("ffn"),
                                      .vocab = file.Size("vocab"),
                                      .padded_vocab = 128,
                                      .seq = file.Size("seq"),
                                      .micro_batch = 1,
                                      .max_positions = file.Size("max_positions")};
    auto cpu = kernels::cpu::MakeCpuBackend({.num_threads = 1});
    CHECK(cpu.ok());
    backend = *std::move(cpu);
    stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
    auto made = DecodeModel::Make({.config = DecodeConfig(trained, dtype, trained.max_positions),
                                   .logit_rows = Scorer::kLogitRows,
                                   .memory_limit_bytes = int64_t{1} << 30,
                                   .backend = backend.get(),
                                   .stream = stream.get()});
    CHECK(made.ok()) << made.status().ToString();
    model = *std::move(made);
    for (const params::ParamSpec& spec : model->weights().registry().params()) {
      const std::vector<double> values = file.Doubles("weight/" + spec.name);
      const kernels::Tensor to = model->weights().Weight(spec.name);
      CHECK_EQ(std::ssize(values), to.NumElements());
      for (int64_t i = 0; i < to.NumElements(); ++i) {
        if (dtype == kernels::DType::kF64) {
          to.Data<double>()[i] = values[static_cast<size_t>(i)];
        } else {
          to.Data<float>()[i] = static_cast<float>(values[static_cast<size_t>(i)]);
        }
      }
    }
  }

  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Stream> stream;
  std::unique_ptr<DecodeModel> model;
};

// A task of the golden, as a task file would give it.
Task TaskOf(const json& given) {
  std::string yaml = "tasks:\n- {name: golden, file: golden.txt";
  for (const auto& [key, value] : given.items())
    yaml += ", " + key + ": " + (value.is_string() ? value.get<std::string>() : value.dump());
  const auto tasks = ParseTasks(yaml + "}\n", "tasks.yaml", "");
  CHECK(tasks.ok()) << tasks.status().ToString();
  auto task = WithWindows(tasks->front(), 32);
  CHECK(task.ok());
  return *std::move(task);
}

// The scores of every task, by name; those that the golden does not have are left out.
void ExpectGoldenScores(kernels::DType dtype, double tolerance) {
  const Network network(dtype);
  const ByteIds tokenizer;
  int64_t compared = 0;
  for (const json& one : Golden()["tasks"]) {
    SCOPED_TRACE(one["task"].dump());
    const Task task = TaskOf(one["task"]);
    const auto documents = ParseDocuments(task, one["text"].get<std::string>());
    ASSERT_TRUE(documents.ok()) << documents.status();
    const auto result = RunTask({.task = &task,
                                 .documents = &*documents,
                                 .tokenizer = &tokenizer,
                                 .model = network.model.get()});
    ASSERT_TRUE(result.ok()) << result.status();
    json scores = {{"documents", result->documents}};
    if (task.type == TaskType::kPerplexity) scores["tokens"] = result->tokens;
    for (const auto& [name, value] : result->scores) scores[name] = value;
    ASSERT_EQ(scores.size(), one["scores"].size()) << scores.dump() << one["scores"].dump();
    for (const auto& [name, want] : one["scores"].items()) {
      ASSERT_TRUE(scores.contains(name)) << name;
      const auto number = want.get<double>();
      EXPECT_NEAR(scores[name].get<double>(), number, tolerance * std::abs(number)) << name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 60);
}

TEST(ScoresGoldenTest, Fp64ScoresAreTorchs) { ExpectGoldenScores(kernels::DType::kF64, 1e-11); }
TEST(ScoresGoldenTest, Fp32ScoresAreTorchs) { ExpectGoldenScores(kernels::DType::kF32, 1e-5); }

// Else the comparison above would not notice a choice that is always or never right.
TEST(ScoresGoldenTest, TheGoldenTellsChoicesApart) {
  std::vector<double> shares;
  for (const json& one : Golden()["tasks"])
    if (one["scores"].contains("accuracy")) shares.push_back(one["scores"]["accuracy"]);
  ASSERT_EQ(shares.size(), 4U);
  for (const double share : shares) {
    EXPECT_GT(share, 0);
    EXPECT_LT(share, 1);
  }
}

TEST(ScoresGoldenTest, WindowsAreTheHarnesss) {
  for (const json& one : Golden()["windows"]) {
    SCOPED_TRACE(one.dump());
    std::vector<int32_t> ids = {96};
    for (int32_t i = 0; i < one["tokens"].get<int32_t>(); ++i) ids.push_back(i);
    json windows = json::array();
    for (const ScoreWindow& w : RollingWindows(std::ssize(ids), one["window"], one["stride"])) {
      const std::vector<int32_t> part(ids.begin() + w.begin, ids.begin() + w.end);
      windows.push_back({part, w.scored});
    }
    EXPECT_EQ(windows, one["windows"]);
  }
}

TEST(ScoresGoldenTest, TextsAreTheHarnesss) {
  const json& cleaned = Golden()["cleaned"];
  for (const json& one : cleaned["wikitext"]) {
    const auto page = one["page"].get<std::string>();
    EXPECT_EQ(DetokenizedWikitext(page), one["text"].get<std::string>()) << page;
    EXPECT_EQ(CountWords(page), one["words"].get<int64_t>()) << page;
    EXPECT_EQ(std::ssize(page), one["bytes"].get<int64_t>()) << page;
  }
  for (const json& one : cleaned["hellaswag"])
    EXPECT_EQ(CleanHellaswag(one[0].get<std::string>()), one[1].get<std::string>()) << one[0];
  for (const json& one : cleaned["stripped"])
    EXPECT_EQ(Stripped(one[0].get_ref<const std::string&>()), one[1].get<std::string>()) << one[0];
  for (const json& one : cleaned["capitalized"]) {
    const auto capitalized = Capitalized(one[0].get<std::string>());
    ASSERT_TRUE(capitalized.ok()) << capitalized.status();
    EXPECT_EQ(*capitalized, one[1].get<std::string>()) << one[0];
  }
}

// What the harness gets wrong elsewhere: there is one token before a text, and it is not scored;
// and sums are fp64 whatever the model is: 8 bits would be off by 1e-3.
TEST(ScoresGoldenTest, TheTokenBeforeATextIsNotScored) {
  const Network network(kernels::DType::kF32);
  const ByteIds tokenizer;
  const Task task = TaskOf({{"type", "perplexity"}, {"window", 32}});
  const TaskDocuments documents = {.texts = {{.text = "abc", .words = 1, .bytes = 3}}};
  const auto result = RunTask({.task = &task,
                               .documents = &documents,
                               .tokenizer = &tokenizer,
                               .model = network.model.get()});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tokens, 3);
  Scorer scorer(network.model.get());
  const std::vector<int32_t> ids = {96, 'a' - 32, 'b' - 32, 'c' - 32};
  const auto tokens = scorer.Score(ids, 3);
  ASSERT_TRUE(tokens.ok());
  double sum = 0;
  for (const TokenScore& token : *tokens) sum += token.log_probability;
  EXPECT_EQ(result->scores[4].first, "log_likelihood");
  EXPECT_EQ(result->scores[4].second, sum);
}

// A beginning that was read before is not read again, which must not be seen.
TEST(ScoresGoldenTest, WhatWasReadBeforeDoesNotShow) {
  const Network network(kernels::DType::kF64);
  std::vector<std::vector<int32_t>> all;
  for (const int32_t last : {1, 2, 3}) {
    all.emplace_back(20, last);
    for (int32_t i = 0; i < 6 * last; ++i) all.back()[static_cast<size_t>(i)] = i;
  }
  all.push_back({all[0].begin(), all[0].begin() + 5});  // a part of it alone
  all.push_back(all[0]);
  Scorer scorer(network.model.get());
  for (const auto& ids : all) {
    for (const int64_t scored : {std::ssize(ids) - 1, int64_t{2}}) {
      const auto together = scorer.Score(ids, scored);
      const auto alone = Scorer(network.model.get()).Score(ids, scored);
      ASSERT_TRUE(together.ok() && alone.ok());
      ASSERT_EQ(std::ssize(*together), scored);
      for (size_t i = 0; i < together->size(); ++i) {
        EXPECT_NEAR((*together)[i].log_probability, (*alone)[i].log_probability, 1e-12);
        EXPECT_EQ((*together)[i].greedy, (*alone)[i].greedy);
      }
    }
  }
}

}  // namespace
}  // namespace mt::decode
