// Both ends of the model against the CPU backend: the embedding with its gradient, and the loss.
#include <algorithm>

#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

class CudaEmbeddingTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaEmbeddingTest);

struct EmbeddingCase {
  int64_t s = 64, b = 4, v = 50, h = 96, first_row = 0;
  bool positions = true, restart = false, counted = false;
};

struct Segments {
  std::vector<int32_t> order, id, start;
};

// Rows by id, ties in rising order.
Segments SegmentsOf(const std::vector<int32_t>& ids) {
  Segments out;
  for (size_t i = 0; i < ids.size(); ++i) out.order.push_back(static_cast<int32_t>(i));
  const auto id_of = [&](int32_t row) { return ids[static_cast<size_t>(row)]; };
  std::stable_sort(out.order.begin(), out.order.end(),
                   [&](int32_t x, int32_t y) { return id_of(x) < id_of(y); });
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!out.id.empty() && out.id.back() == id_of(out.order[i])) continue;
    out.id.push_back(id_of(out.order[i]));
    out.start.push_back(static_cast<int32_t>(i));
  }
  out.start.push_back(static_cast<int32_t>(ids.size()));
  return out;
}

// Frequent tokens make long segments: half of all rows are token 0.
struct EmbeddingProblem {
  EmbeddingProblem(const EmbeddingCase& c, DType type) : config(c) {
    Twins twins(5);
    const int64_t rows = c.s * c.b;
    std::vector<int32_t> ids, at;
    for (int64_t i = 0; i < rows; ++i) {
      const double u = std::abs(twins.Next());
      ids.push_back(u < 0.5 ? 0 : static_cast<int32_t>(u * static_cast<double>(2 * c.v)) % 60);
    }
    auto [order, token, start] = SegmentsOf(ids);
    segments = static_cast<int64_t>(token.size());
    if (c.counted) {
      count = Twins::Of<int32_t>({1}, {static_cast<int32_t>(segments)});
      // What an earlier microbatch left: rows that would count if they were read.
      token.resize(static_cast<size_t>(rows), 3);
      start.resize(static_cast<size_t>(rows) + 1, 1);
      segments = rows;
    }
    for (int64_t i = 0; i < c.s; ++i) {
      at.push_back(static_cast<int32_t>(c.restart ? i % 10 : i + 3));
    }
    tokens = Twins::Of<int32_t>({rows}, ids);
    sorted = Twins::Of<int32_t>({rows}, order);
    segment_token = Twins::Of<int32_t>({segments}, token);
    segment_start = Twins::Of<int32_t>({segments + 1}, start);
    positions = Twins::Of<int32_t>({c.s}, at);
    table = twins.Random(type, {c.v, c.h});
    out = Twins::Output(type, {rows, c.h});
    dy = twins.Random(type, {rows, c.h});
    dtable = twins.Random(DType::kF32, {c.v, c.h});
    if (c.positions) dposition = twins.Random(DType::kF32, {c.s + 3, c.h});
  }
  void Run(Side side) const {
    const EmbeddingOps& embedding = BackendOf(side).embedding();
    embedding.Gather(StreamOf(side), {.tokens = tokens[side],
                                      .table = table[side],
                                      .first_row = config.first_row,
                                      .out = out[side]});
    embedding.ScatterGrad(StreamOf(side), {.dy = dy[side],
                                           .order = sorted[side],
                                           .segment_token = segment_token[side],
                                           .segment_start = segment_start[side],
                                           .num_segments = segments,
                                           .count = count[side],
                                           .first_row = config.first_row,
                                           .dtable = dtable[side],
                                           .positions = positions[side],
                                           .batch = config.b,
                                           .dposition = dposition[side]});
  }
  EmbeddingCase config;
  int64_t segments = 0;
  Operand tokens, sorted, segment_token, segment_start, count, positions, table, out, dy, dtable,
      dposition;
};

TEST_P(CudaEmbeddingTest, GatherAndGradientAreTheCpus) {
  const EmbeddingCase cases[] = {{},
                                 {.counted = true},
                                 {.s = 1000, .b = 2, .h = 768, .counted = true},
                                 {.h = 33},
                                 {.s = 1000, .b = 2, .h = 768, .restart = true},
                                 {.v = 30, .h = 64, .first_row = 20, .positions = false}};
  for (const EmbeddingCase& c : cases) {
    const EmbeddingProblem p(c, GetParam());
    for (const Side side : kSides) p.Run(side);
    const std::string what = "h " + std::to_string(c.h);
    ExpectSameBits(p.out, what);
    ExpectClose(p.dtable, Kind::kSum, DType::kF32, what + " dtable");
    if (c.positions) ExpectClose(p.dposition, Kind::kSum, DType::kF32, what + " dposition");
    // The same bits in another run.
    const EmbeddingProblem again(c, GetParam());
    again.Run(Side::kGpu);
    EXPECT_EQ(again.dtable.Bytes(Side::kGpu), p.dtable.Bytes(Side::kGpu));
  }
}

// Positions that each row has of its own: most documents are short, so the first ones are frequent.
TEST_P(CudaEmbeddingTest, PositionsThatRestartAreAddedLikeTokens) {
  constexpr int64_t kRows = 2000, kS = 500;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kRows; ++i) ids.push_back(i % (i % 500 < 250 ? 11 : 240));
  Segments sorted = SegmentsOf(ids);
  const Operand count = Twins::Of<int32_t>({1}, {static_cast<int32_t>(std::ssize(sorted.id))});
  sorted.id.resize(kS, 3);  // of an earlier microbatch
  sorted.start.resize(kS + 1, 1);
  for (const int64_t h : {768, 33}) {
    Twins twins(6);
    const Operand order = Twins::Of<int32_t>({kRows}, sorted.order),
                  id = Twins::Of<int32_t>({kS}, sorted.id),
                  start = Twins::Of<int32_t>({kS + 1}, sorted.start),
                  dy = twins.Random(GetParam(), {kRows, h}),
                  dposition = twins.Random(DType::kF32, {kS, h});
    const std::vector<std::byte> before = dposition.Bytes(Side::kGpu);
    const auto run = [&](Side side) {
      BackendOf(side).embedding().ScatterGrad(StreamOf(side), {.dy = dy[side],
                                                               .order = order[side],
                                                               .segment_token = id[side],
                                                               .segment_start = start[side],
                                                               .num_segments = kS,
                                                               .count = count[side],
                                                               .dtable = dposition[side]});
    };
    for (const Side side : kSides) run(side);
    ExpectClose(dposition, Kind::kSum, DType::kF32, "h " + std::to_string(h));
    const std::vector<std::byte> once = dposition.Bytes(Side::kGpu);
    dposition.SetBytes(Side::kGpu, before.data());
    run(Side::kGpu);
    EXPECT_EQ(dposition.Bytes(Side::kGpu), once) << "the same bits in another run";
  }
}

class CudaLossTest : public GpuTest {};
INSTANTIATE_FOR_TYPES(CudaLossTest);

struct LossProblem {
  LossProblem(DType type, int64_t rows, int64_t v, int64_t real, int64_t shards = 1)
      : columns(v), real_columns(real) {
    Twins twins(9);
    std::vector<int32_t> ids;
    std::vector<float> weights;
    for (int64_t i = 0; i < rows; ++i) {
      ids.push_back(static_cast<int32_t>(std::abs(twins.Next()) * static_cast<double>(real)));
      weights.push_back(i % 5 == 3 ? 0.0F : 1.0F);
    }
    labels = Twins::Of<int32_t>({rows}, ids);
    weight = Twins::Of<float>({rows}, weights);
    for (int64_t i = 0; i < shards; ++i) logits.push_back(twins.Random(type, {rows, v}, 6));
    stats = Twins::Output(DType::kF32, {shards, rows, 3});
    sums = twins.Random(DType::kF64, {2});
    scale = Twins::Of<double>({1}, {1024.0});
  }
  LossFinishArgs Finish(Side side, size_t shard = 0) const {
    return {.logits = logits[shard][side],
            .labels = labels[side],
            .first_column = static_cast<int64_t>(shard) * columns,
            .real_columns = real_columns,
            .stats = stats[side],
            .weight = weight[side],
            .seed = 1.0 / 64,
            .loss_scale = static_cast<const double*>(scale[side].data),
            .sums = sums[side]};
  }
  int64_t columns, real_columns;
  std::vector<Operand> logits;
  Operand labels, weight, stats, sums, scale;
};

void ExpectSums(const LossProblem& p, const std::string& what) {
  const auto actual = p.sums.Values(Side::kGpu), expected = p.sums.Values(Side::kCpu);
  EXPECT_NEAR(actual[0], expected[0], 1e-6 * std::abs(expected[0])) << what;
  EXPECT_NEAR(actual[1], expected[1], 1e-12) << what;
}

TEST_P(CudaLossTest, OneShardInOneCall) {
  // Rows that begin off the 16-byte border, padding, a vocabulary smaller than a block.
  for (const auto& [rows, v, real] : {std::array<int64_t, 3>{40, 50257, 50257},
                                      {64, 50304, 50257},
                                      {7, 100, 97},
                                      {300, 1000, 1000},
                                      {40, 4104, 4090}}) {
    const LossProblem p(GetParam(), rows, v, real);
    for (const Side side : kSides) {
      BackendOf(side).loss().StatsFinish(StreamOf(side), p.Finish(side));
    }
    const std::string what = "v " + std::to_string(v);
    ExpectClose(p.logits[0], Kind::kSum, GetParam(), what + " dlogits");
    ExpectClose(p.stats, Kind::kSum, DType::kF32, what + " stats");
    ExpectSums(p, what);
  }
}

TEST_P(CudaLossTest, OneShardIsEvaluatedWithoutAChange) {
  for (const int64_t v : {1000, 1001}) {
    const LossProblem p(GetParam(), 20, v, 997), untouched(GetParam(), 20, v, 997);
    for (const Side side : kSides) {
      LossFinishArgs evaluation = p.Finish(side);
      evaluation.write_gradient = false;
      BackendOf(side).loss().StatsFinish(StreamOf(side), evaluation);
    }
    EXPECT_EQ(p.logits[0].Bytes(Side::kGpu), untouched.logits[0].Bytes(Side::kGpu));
    ExpectClose(p.stats, Kind::kSum, DType::kF32, "stats");
    ExpectSums(p, "v " + std::to_string(v));
  }
}

TEST_P(CudaLossTest, MaskedRowsTakeNoPartWhateverTheyHold) {
  for (const int64_t v : {1000, 1001}) {
    const LossProblem p(GetParam(), 20, v, 997);
    std::vector<std::byte> logits = p.logits[0].Bytes(Side::kCpu);
    const size_t row_bytes = logits.size() / 20;
    // All ones: NaN. Row 3 and every fifth one from there on are masked.
    for (const size_t row : {size_t{3}, size_t{18}}) {
      std::fill_n(logits.begin() + static_cast<ptrdiff_t>(row * row_bytes), row_bytes,
                  std::byte{0xFF});
    }
    p.logits[0].SetBoth(logits.data());
    for (const Side side : kSides) {
      BackendOf(side).loss().StatsFinish(StreamOf(side), p.Finish(side));
    }
    ExpectSums(p, "v " + std::to_string(v));
    const auto gradient = p.logits[0].Values(Side::kGpu);
    for (const int64_t row : {3, 18}) {
      for (int64_t c = 0; c < v; ++c) ASSERT_EQ(gradient[static_cast<size_t>(row * v + c)], 0.0);
    }
  }
}

TEST_P(CudaLossTest, ShardsJoinAndEvaluationLeavesLogits) {
  const LossProblem p(GetParam(), 33, 504, 997, 2);
  for (const Side side : kSides) {
    for (size_t shard = 0; shard < 2; ++shard) {
      const LossFinishArgs finish = p.Finish(side, shard);
      const Tensor all = p.stats[side];
      BackendOf(side).loss().Stats(StreamOf(side),
                                   {.logits = finish.logits,
                                    .labels = finish.labels,
                                    .first_column = finish.first_column,
                                    .real_columns = finish.real_columns,
                                    .stats = Tensor{all.data, all.dtype, {2 * 33, 3}}.Rows(
                                        static_cast<int64_t>(shard) * 33, 33)});
    }
    LossFinishArgs evaluation = p.Finish(side, 0);
    evaluation.write_gradient = false;
    BackendOf(side).loss().Finish(StreamOf(side), evaluation);
  }
  const LossProblem untouched(GetParam(), 33, 504, 997, 2);
  EXPECT_EQ(p.logits[0].Bytes(Side::kGpu), untouched.logits[0].Bytes(Side::kGpu));
  for (const Side side : kSides) {
    for (size_t shard = 0; shard < 2; ++shard) {
      BackendOf(side).loss().Finish(StreamOf(side), p.Finish(side, shard));
    }
  }
  ExpectSums(p, "three sums");
  for (const Operand& x : p.logits) ExpectClose(x, Kind::kSum, GetParam(), "dlogits of a shard");
}

}  // namespace
}  // namespace mt::kernels::cuda
