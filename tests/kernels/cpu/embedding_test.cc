// Embedding lookup and its gradient against plain loops; legend as in kernels/ops/embedding.h.
#include "kernels/ops/embedding.h"

#include <algorithm>

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

struct Sorted {
  Array<int32_t> order, segment_token, segment_start;
  int64_t num_segments;
};

// What the loader makes: rows by token, ties in rising order.
Sorted SortTokens(const Array<int32_t>& tokens) {
  const int64_t n = tokens.size();
  Sorted out{Ints({n}, [](int64_t i) { return i; }), Array<int32_t>({n}), Array<int32_t>({n + 1}),
             0};
  std::stable_sort(out.order.data(), out.order.data() + n,
                   [&](int32_t a, int32_t b) { return tokens[a] < tokens[b]; });
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0 && tokens[out.order[i]] == tokens[out.order[i - 1]]) continue;
    out.segment_token[out.num_segments] = tokens[out.order[i]];
    out.segment_start[out.num_segments++] = static_cast<int32_t>(i);
  }
  out.segment_start[out.num_segments] = static_cast<int32_t>(n);
  return out;
}

TEST(EmbeddingTest, GatherTakesRowsOfItsShardAndZeroesOthers) {
  Array<int32_t> tokens({5});
  const int32_t ids[] = {4, 9, 7, 4, 0};
  std::copy(std::begin(ids), std::end(ids), tokens.data());
  Uniform random(1);
  Array<float> table = random.Make<float>({4, 7});  // rows 4..7 of the vocabulary
  Array<float> out({5, 7}, 99.0F);
  Cpu(2).embedding().Gather(
      AnyStream(),
      {.tokens = tokens.tensor(), .table = table.tensor(), .first_row = 4, .out = out.tensor()});
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t c = 0; c < 7; ++c) {
      const bool mine = ids[i] >= 4 && ids[i] < 8;
      EXPECT_EQ(out[i * 7 + c], mine ? table[(ids[i] - 4) * 7 + c] : 0.0F);
    }
  }
}

class ScatterTest : public testing::TestWithParam<int> {};

TEST_P(ScatterTest, AddsEveryRowToItsTokenAndItsPosition) {
  constexpr int64_t kS = 33, kB = 2, kV = 6, kH = 37, kFirst = 2;
  Uniform random(2);
  Array<int32_t> tokens = Ints({kS * kB}, [](int64_t i) { return (i * 7 + i / 5) % 10; });
  Array<int32_t> positions = Ints({kS}, [](int64_t i) { return i % 20; });  // a second document
  Array<double> dy = random.Make<double>({kS * kB, kH});
  Array<double> dtable = random.Make<double>({kV, kH});
  Array<double> dposition = random.Make<double>({20, kH});
  Array<double> expected_table = dtable, expected_position = dposition;
  for (int64_t row = 0; row < kS * kB; ++row) {
    for (int64_t c = 0; c < kH; ++c) {
      const int64_t local = tokens[row] - kFirst;
      if (local >= 0 && local < kV) expected_table[local * kH + c] += dy[row * kH + c];
      expected_position[positions[row / kB] * kH + c] += dy[row * kH + c];
    }
  }
  Sorted sorted = SortTokens(tokens);
  Cpu(GetParam())
      .embedding()
      .ScatterGrad(AnyStream(), {.dy = dy.tensor(),
                                 .order = sorted.order.tensor(),
                                 .segment_token = sorted.segment_token.tensor(),
                                 .segment_start = sorted.segment_start.tensor(),
                                 .num_segments = sorted.num_segments,
                                 .first_row = kFirst,
                                 .dtable = dtable.tensor(),
                                 .positions = positions.tensor(),
                                 .batch = kB,
                                 .dposition = dposition.tensor()});
  // Rows are added in rising order on both sides, so the bits agree.
  EXPECT_TRUE(dtable == expected_table);
  EXPECT_TRUE(dposition == expected_position);
}

// Positions that each row has of its own are added as tokens are.
TEST(EmbeddingTest, PositionsThatRestartAreSortedLikeTokens) {
  constexpr int64_t kRows = 90, kS = 45, kH = 21;
  Uniform random(5);
  Array<int32_t> positions = Ints({kRows}, [](int64_t i) { return i * i % 13; });
  Array<double> dy = random.Make<double>({kRows, kH});
  Array<double> dposition = random.Make<double>({kS, kH});
  Array<double> expected = dposition;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t c = 0; c < kH; ++c) expected[positions[row] * kH + c] += dy[row * kH + c];
  }
  Sorted sorted = SortTokens(positions);
  Array<int32_t> count = Ints({1}, [&](int64_t) { return sorted.num_segments; });
  Cpu(2).embedding().ScatterGrad(AnyStream(), {.dy = dy.tensor(),
                                               .order = sorted.order.tensor(),
                                               .segment_token = sorted.segment_token.tensor(),
                                               .segment_start = sorted.segment_start.tensor(),
                                               .num_segments = kS,
                                               .count = count.tensor(),
                                               .dtable = dposition.tensor()});
  EXPECT_TRUE(dposition == expected);
}

TEST(EmbeddingTest, TheNumberOfSegmentsMayLieInMemory) {
  constexpr int64_t kTokens = 40, kV = 5, kH = 19;
  Uniform random(4);
  Array<int32_t> tokens = Ints({kTokens}, [](int64_t i) { return i * i % kV; });
  Array<float> dy = random.Make<float>({kTokens, kH});
  Array<float> expected({kV, kH}), dtable({kV, kH});
  Sorted sorted = SortTokens(tokens);
  EmbeddingScatterArgs args{.dy = dy.tensor(),
                            .order = sorted.order.tensor(),
                            .segment_token = sorted.segment_token.tensor(),
                            .segment_start = sorted.segment_start.tensor(),
                            .num_segments = sorted.num_segments,
                            .dtable = expected.tensor()};
  Cpu(2).embedding().ScatterGrad(AnyStream(), args);
  // What an earlier microbatch left behind the last segment must not count.
  for (int64_t i = sorted.num_segments; i < kTokens; ++i) {
    sorted.segment_token[i] = 1;
    sorted.segment_start[i + 1] = static_cast<int32_t>(kTokens - i % 3);
  }
  Array<int32_t> count = Ints({1}, [&](int64_t) { return sorted.num_segments; });
  args.num_segments = kTokens;
  args.count = count.tensor();
  args.dtable = dtable.tensor();
  Cpu(2).embedding().ScatterGrad(AnyStream(), args);
  EXPECT_TRUE(dtable == expected);
}

INSTANTIATE_TEST_SUITE_P(Threads, ScatterTest, testing::Values(1, 2, 5));

TEST(EmbeddingTest, ScatterIsTheGradientOfGather) {
  Array<int32_t> tokens = Ints({11}, [](int64_t i) { return (3 * i) % 5; });
  Uniform random(3);
  Array<double> table = random.Make<double>({5, 3});
  Array<double> weight = random.Make<double>({11, 3});
  Array<double> out({11, 3}), dtable({5, 3});
  const auto loss = [&] {
    Cpu(1).embedding().Gather(
        AnyStream(), {.tokens = tokens.tensor(), .table = table.tensor(), .out = out.tensor()});
    return WeightedSum(weight, out);
  };
  Sorted sorted = SortTokens(tokens);
  Cpu(1).embedding().ScatterGrad(AnyStream(), {.dy = weight.tensor(),
                                               .order = sorted.order.tensor(),
                                               .segment_token = sorted.segment_token.tensor(),
                                               .segment_start = sorted.segment_start.tensor(),
                                               .num_segments = sorted.num_segments,
                                               .dtable = dtable.tensor()});
  ExpectGradient(table, loss, dtable, "table");
}

}  // namespace
}  // namespace mt::kernels::cpu
