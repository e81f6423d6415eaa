// Ranks that decode together, as threads: each has a part of a network's weights as training stores
// them. The logits are those of one rank that has them all, and the same bits on every rank.
#include "worker/decode/network_part.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/worker/decode/decode_rig.h"
#include "tests/worker/model/model_rig.h"
#include "worker/comm/threads/hub.h"
#include "worker/data/tokenizer/plain_tokenizers.h"
#include "worker/decode/generator.h"

namespace mt::decode {
namespace {

using kernels::DType;
using model::GptConfig;
using model::GptModel;

struct Layout {
  std::string name;
  int tp = 1;
  int stages = 1;
  int chunks = 1;  // of a stage
  int ranks() const { return tp * stages; }
};

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> all = {{"tp2", 2, 1, 1},        {"pp2", 1, 2, 1},
                                          {"tp2_pp2", 2, 2, 1},    {"pp3", 1, 3, 1},
                                          {"pp2_of_two", 1, 2, 2}, {"tp2_pp2_of_three", 2, 2, 3}};
  return all;
}

// The chunks of a stage. Of more positions than layers some only pass their input on, and the head
// may be alone.
std::vector<GptModel::Chunk> ChunksOf(const GptConfig& config, const Layout& layout, int stage) {
  const int positions = layout.stages * layout.chunks;
  std::vector<GptModel::Chunk> chunks;
  for (int at = stage; at < positions; at += layout.stages) {
    const int64_t begin = config.layers * at / positions;
    const int64_t end = config.layers * (at + 1) / positions;
    chunks.push_back({.place = {.stage = stage,
                                .chunk = at / layout.stages,
                                .first_layer = begin,
                                .num_layers = end - begin,
                                .has_embedding = at == 0,
                                .has_head = at + 1 == positions}});
  }
  return chunks;
}

// Gives a rank's rig the part that it stores of the weights of a rig that has all.
void TakeWeights(const model::ModelRig& whole, model::ModelRig* part) {
  for (const params::ParamId id : part->Ids()) {
    const params::ParamSpec& spec = part->registry()[id];
    const params::ParamId from = whole.IdOf(spec.name);
    const std::vector<double> all = whole.Weight(from);
    const base::Runs all_places = whole.registry()[from].Places();
    const base::Runs places = spec.Places();
    const kernels::Shape held = spec.Held();
    const int64_t columns = held.rank() == 2 ? held[1] : 1;
    const int64_t all_columns = held.rank() == 2 ? spec.shape[1] : 1;
    std::vector<double> values = part->Weight(id);
    for (int64_t i = 0; i < held.NumElements(); ++i) {
      const int64_t element =
          (spec.begin[0] + i / columns) * all_columns + spec.begin[1] + i % columns;
      values[static_cast<size_t>(places.At(i))] = all[static_cast<size_t>(all_places.At(element))];
    }
    part->SetWeight(id, values);
  }
}

// What one rank decodes with.
struct Rank {
  DecodeModel* model = nullptr;
  comm::ProcessGroup* ranks = nullptr;  // nullptr with one stage
  int number = 0;
};

// Runs `body` on every rank of the layout, each a thread.
void RunRanks(const model::ModelRig& whole, const GptConfig& config, const Layout& layout,
              const std::function<void(const Rank&)>& body) {
  comm::ThreadsHub hub(comm::CommConfig{});
  const auto group = [&hub](const std::string& name, int first, int count, int index) {
    std::vector<int> members;
    for (int i = 0; i < count; ++i) members.push_back(first + i);
    return hub.Create({.name = name, .members = members, .my_index = index}).value();
  };
  const auto run = [&](int number) {
    const int stage = number / layout.tp, tensor_rank = number % layout.tp;
    const int first = stage * layout.tp;
    const auto shares = group(fmt::format("tp/{}", first), first, layout.tp, tensor_rank);
    const auto together = group("decode/0", 0, layout.ranks(), number);
    parallel::TensorParallel tensor(shares.get(), /*sequence_parallel=*/false);
    GptConfig own = config;
    own.shard = {.rank = tensor_rank, .size = layout.tp};
    const std::vector<GptModel::Chunk> chunks = ChunksOf(config, layout, stage);
    model::ModelRig rig(own, {.chunks = chunks, .tensor = &tensor});
    TakeWeights(whole, &rig);
    const TrainedWeights weights(&rig.store());
    const auto stream = rig.backend().device().CreateStream(kernels::StreamPriority::kLow);
    DecodeModel::Args args{.config = TrainedDecodeConfig(own, config.seq),
                           .sequences = 3,
                           .memory_limit_bytes = int64_t{1} << 32,
                           .backend = &rig.backend(),
                           .stream = stream.get(),
                           .trained = &weights};
    args.part = {.stages = layout.stages, .tensor = &tensor, .ranks = together.get()};
    for (const GptModel::Chunk& chunk : chunks) args.part.chunks.push_back(chunk.place);
    const auto model = DecodeModel::Make(args);
    ASSERT_TRUE(model.ok()) << model.status();
    body({model->get(), together.get(), number});
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < layout.ranks(); ++number) threads.emplace_back(run, number);
  for (std::thread& thread : threads) thread.join();
}

// The logits of `tokens` as they are read: a prompt of four, then one by one beside another
// sequence.
std::vector<std::vector<double>> Logits(DecodeModel* model, const std::vector<int32_t>& tokens) {
  std::vector<std::vector<double>> logits;
  const int64_t vocab = model->config().vocab;
  std::vector<Row> prompt;
  for (int32_t i = 0; i < 4; ++i) prompt.push_back({tokens[static_cast<size_t>(i)], 1, i});
  model->Forward(prompt);
  const kernels::Tensor two = model->Logits(std::vector<int>{3, 1});
  for (const int64_t row : {0, 1}) logits.push_back(RowOf(two, row, vocab));
  model->CopySequence(1, 2, 4);
  for (int32_t i = 4; i < std::ssize(tokens); ++i) {
    const auto at = static_cast<size_t>(i);
    const kernels::Tensor step =
        model->Step(std::vector<Row>{{tokens[at - 4], 0, i - 4}, {tokens[at], 2, i}});
    for (const int64_t row : {0, 1}) logits.push_back(RowOf(step, row, vocab));
  }
  return logits;
}

void ExpectNear(const std::vector<std::vector<double>>& got,
                const std::vector<std::vector<double>>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t row = 0; row < want.size(); ++row) {
    double largest = 0;
    for (const double logit : want[row]) largest = std::max(largest, std::abs(logit));
    ASSERT_EQ(got[row].size(), want[row].size());
    for (size_t v = 0; v < want[row].size(); ++v)
      ASSERT_NEAR(got[row][v], want[row][v], 1e-12 * largest) << "row " << row << ", token " << v;
  }
}

class RanksTest : public testing::TestWithParam<size_t> {};

// Every variant whose heads two ranks can share.
TEST_P(RanksTest, HaveTheLogitsOfOne) {
  const Layout& layout = Layouts()[GetParam()];
  for (const Variant& variant : Variants()) {
    const GptConfig config = ConfigOf(variant);
    if (config.heads % layout.tp != 0 || config.kv_heads % layout.tp != 0) continue;
    SCOPED_TRACE(variant.name);
    model::ModelRig whole(config);
    MakeWeightsUneven(&whole);
    const std::vector<int32_t> tokens = SomeTokens(config, 5);
    const auto want = Logits(MakeModel(&whole, config, DType::kF64, 3).get(), tokens);
    std::vector<std::vector<std::vector<double>>> got(static_cast<size_t>(layout.ranks()));
    RunRanks(whole, config, layout, [&](const Rank& rank) {
      got[static_cast<size_t>(rank.number)] = Logits(rank.model, tokens);
      EXPECT_TRUE(rank.model->status().ok()) << rank.model->status();
    });
    ASSERT_NO_FATAL_FAILURE(ExpectNear(got.front(), want));
    for (const auto& logits : got) EXPECT_EQ(logits, got.front());
  }
}

// Greedy and drawn, each token for token.
TEST_P(RanksTest, WriteTheTextOfOne) {
  const Layout& layout = Layouts()[GetParam()];
  const GptConfig config = Base();
  model::ModelRig whole(config);
  MakeWeightsUneven(&whole);
  const auto tokenizer = data::MakeNullTokenizer(config.vocab);
  for (const double temperature : {0.0, 1.3}) {
    const GenerateRequest request{.prompts = {{1, 2, 3}, {7}},
                                  .samples = temperature > 0 ? 2 : 1,
                                  .tokens = 7,
                                  .sampling = {.temperature = temperature, .seed = 3}};
    const auto ids = [&](DecodeModel* model) {
      std::vector<std::vector<int32_t>> all;
      const auto report = Generate(model, *tokenizer, request);
      if (!report.ok()) return all;
      for (const Continuation& one : report->continuations) all.push_back(one.ids);
      return all;
    };
    const auto want = ids(MakeModel(&whole, config, DType::kF64, 3).get());
    ASSERT_FALSE(want.empty());
    std::vector<std::vector<std::vector<int32_t>>> got(static_cast<size_t>(layout.ranks()));
    RunRanks(whole, config, layout,
             [&](const Rank& rank) { got[static_cast<size_t>(rank.number)] = ids(rank.model); });
    for (const auto& texts : got) EXPECT_EQ(texts, want) << "temperature " << temperature;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, RanksTest, testing::Range<size_t>(0, Layouts().size()),
                         [](const auto& test) { return Layouts()[test.param].name; });

// Nobody goes on with what a lost rank did not send.
TEST(RanksFailureTest, TheLossOfOneEndsTheTextOfAll) {
  const GptConfig config = Base();
  const model::ModelRig whole(config);
  const auto tokenizer = data::MakeNullTokenizer(config.vocab);
  RunRanks(whole, config, {"tp2_pp2", 2, 2, 1}, [&](const Rank& rank) {
    if (rank.number == 3) rank.ranks->Abort("lost");
    const auto report = Generate(rank.model, *tokenizer, {.prompts = {{1, 2}}, .tokens = 6});
    EXPECT_FALSE(report.ok());
    EXPECT_FALSE(rank.model->status().ok());
  });
}

TEST(JoinLogitsTest, PutsEachRanksTokensSideBySide) {
  // Three ranks with three tokens each, two rows; the last token is padding.
  std::vector<float> all, rows(16, -1);
  for (int i = 0; i < 18; ++i) all.push_back(static_cast<float>(i));
  JoinLogits({all.data(), DType::kF32, {6, 3}}, {rows.data(), DType::kF32, {2, 8}});
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 2, 6, 7, 8, 12, 13, 3, 4, 5, 9, 10, 11, 15, 16}));
}

}  // namespace
}  // namespace mt::decode
