// The optimizer's ops, vectors, embedding and loss on operands of more than 2^31 elements
// (large.h).
#include "tests/kernels/cuda/large.h"

namespace mt::kernels::cuda {
namespace {

// Shards of the optimizer.

constexpr int64_t kWide = 4099;  // no multiple of a vector
constexpr int64_t kShardRows = kTwoTo31 / kWide + 9;

TEST_F(LargeOperandsTest, UpdatesReachEveryElement) {
  for (const bool adam : {true, false}) {
    const Large gradient(DType::kF32, kShardRows, kWide), master(DType::kF32, kShardRows, kWide);
    const Large m(DType::kF32, kShardRows, kWide), v(DType::kF32, kShardRows, kWide);
    const Large copy(DType::kBf16, kShardRows, kWide);
    gradient.FillNormal(1, 4);
    master.FillNormal(2, 0.02);
    m.FillNormal(3, 0.1);
    Gpu().vector().Fill(GpuStream(), v.Flat(), 0.01);
    copy.Zero();
    const Operand scalars = ScalarsOfStep(/*skip=*/0);
    const auto update = [&](Side side, const std::array<Tensor, 5>& on) {
      const StepScalars* const at = ScalarsAt(scalars, side);
      if (adam) {
        BackendOf(side).update().AdamW(StreamOf(side), {.gradient = on[0],
                                                        .master = on[1],
                                                        .m = on[2],
                                                        .v = on[3],
                                                        .model_copy = on[4],
                                                        .decay = true,
                                                        .scalars = at});
      } else {
        BackendOf(side).update().Sgd(StreamOf(side), {.gradient = on[0],
                                                      .master = on[1],
                                                      .momentum = on[2],
                                                      .model_copy = on[4],
                                                      .decay = true,
                                                      .scalars = at});
      }
    };
    const std::array<const Large*, 5> all = {&gradient, &master, &m, &v, &copy};
    std::vector<std::vector<Operand>> taken(3);
    const auto windows = RowsOf(master);
    for (size_t w = 0; w < windows.size(); ++w) {
      for (const Large* x : all) taken[w].push_back(Take(*x, windows[w]));
      // Fill of the whole has reached them too.
      for (const double x : taken[w][3].Values(Side::kGpu)) ASSERT_EQ(x, double{0.01F});
    }
    update(Side::kGpu, {gradient.Flat(), master.Flat(), m.Flat(), v.Flat(), copy.Flat()});
    for (size_t w = 0; w < windows.size(); ++w) {
      std::array<Tensor, 5> part;
      for (size_t i = 0; i < all.size(); ++i) part[i] = taken[w][i][Side::kCpu];
      update(Side::kCpu, part);
      for (size_t i = 1; i < all.size(); ++i) {
        Retake(*all[i], windows[w], taken[w][i]);
        ExpectClose(taken[w][i], Kind::kElement, all[i]->tensor().dtype, At(windows[w]));
      }
    }
  }
}

TEST_F(LargeOperandsTest, SquaresOfEveryElementAreAdded) {
  const Large gradient(DType::kF32, kShardRows, kWide);
  gradient.Zero();
  // Ones at both ends and around element 2^31, and one infinity behind it.
  int64_t ones = 0;
  for (const Rows& rows : RowsOf(gradient)) {
    const Tensor part = gradient.tensor().Rows(rows.begin, rows.count);
    Gpu().vector().Fill(GpuStream(), part, 1);
    ones += part.NumElements();
  }
  const float infinity = std::numeric_limits<float>::infinity();
  Gpu().device().Copy(GpuStream(), static_cast<float*>(gradient.tensor().data) + kTwoTo31 + 1,
                      &infinity, sizeof(infinity));
  const Operand out = Twins::Of<double>({2}, {0, 0});
  Gpu().update().SquareSum(GpuStream(), {.gradient = gradient.Flat(), .out = out[Side::kGpu]});
  EXPECT_EQ(out.Values(Side::kGpu), (std::vector<double>{static_cast<double>(ones - 1), 1}));
}

TEST_F(LargeOperandsTest, VectorsReachEveryElement) {
  const Large a(DType::kF32, kShardRows, kWide), b(DType::kF32, kShardRows, kWide);
  const Large narrow(DType::kBf16, kShardRows, kWide);
  b.FillNormal(2, 1);
  // One call for all: the numbers of the calls for parts.
  Gpu().random().FillNormal(GpuStream(), {.key = 1, .std = 1, .out = a.Flat()});
  const auto windows = RowsOf(a);
  std::vector<Operand> sums;
  for (size_t w = 0; w < windows.size(); ++w) {
    sums.push_back(Take(a, windows[w]));
    const Tensor part = sums[w][Side::kCpu];
    BackendOf(Side::kCpu)
        .random()
        .FillNormal(StreamOf(Side::kCpu),
                    {.key = 1, .first_index = windows[w].begin * kWide, .std = 1, .out = part});
    ExpectClose(sums[w], Kind::kElement, DType::kF32, "random " + At(windows[w]));
    BackendOf(Side::kCpu)
        .vector()
        .AddTo(StreamOf(Side::kCpu), part, Take(b, windows[w])[Side::kCpu]);
  }
  Gpu().vector().AddTo(GpuStream(), a.Flat(), b.Flat());
  Gpu().vector().Cast(GpuStream(), narrow.Flat(), a.Flat());
  Partials terms;
  terms.tensor[0] = a.Flat();
  terms.tensor[1] = b.Flat();
  terms.count = 2;
  for (size_t w = 0; w < windows.size(); ++w) {
    Retake(a, windows[w], sums[w]);
    ExpectClose(sums[w], Kind::kElement, DType::kF32, "sum " + At(windows[w]));
    const std::vector<double> wide = Values(a, windows[w]), cast = Values(narrow, windows[w]);
    for (size_t i = 0; i < wide.size(); ++i) {
      Bf16 rounded;
      cpu::Narrow(static_cast<float>(wide[i]), &rounded);
      ASSERT_EQ(cast[i], static_cast<double>(cpu::Widen(rounded))) << At(windows[w]) << ", " << i;
    }
  }
  std::array<std::vector<double>, 3> expected;
  for (size_t w = 0; w < windows.size(); ++w) {
    expected[w] = Values(a, windows[w]);
    const std::vector<double> more = Values(b, windows[w]);
    for (size_t i = 0; i < more.size(); ++i)
      expected[w][i] =
          static_cast<double>(static_cast<float>(expected[w][i]) + static_cast<float>(more[i]));
  }
  Gpu().vector().SumPartials(GpuStream(), a.Flat(), terms);
  for (size_t w = 0; w < windows.size(); ++w)
    EXPECT_EQ(Values(a, windows[w]), expected[w]) << At(windows[w]);
}

// Columns that see nothing but zeros up to the last rows.
TEST_F(LargeOperandsTest, ColumnsAreAddedOverEveryRow) {
  const Large x(DType::kBf16, kShardRows, kWide);
  x.Zero();
  std::vector<double> expected(kWide);
  for (const Rows& rows : RowsOf(x)) {
    const Tensor part = x.tensor().Rows(rows.begin, rows.count);
    Gpu().vector().Fill(GpuStream(), part, 0.5);
    for (double& sum : expected) sum += 0.5 * static_cast<double>(rows.count);
  }
  const Operand out = Twins::Output(DType::kF32, {kWide});
  Gpu().vector().RowSum(GpuStream(), x.tensor(), GradMode::kOverwrite, out[Side::kGpu]);
  EXPECT_EQ(out.Values(Side::kGpu), expected);
}

// Embedding.

TEST_F(LargeOperandsTest, RowsBeyondAreGatheredAndScattered) {
  const std::vector<int32_t> tokens = {0, 7, 1 << 20, (1 << 20) - 1, (1 << 20) + 39, 1 << 20};
  const auto count = static_cast<int64_t>(tokens.size());
  const Large table(DType::kBf16, kMany, kHidden), gradient(DType::kF32, kMany, kHidden);
  table.FillNormal(4, 1);
  gradient.Zero();
  const Operand ids = Twins::Of<int32_t>({count}, tokens);
  const Operand out = Twins::Output(DType::kBf16, {count, kHidden});
  Gpu().embedding().Gather(
      GpuStream(), {.tokens = ids[Side::kGpu], .table = table.tensor(), .out = out[Side::kGpu]});
  const std::vector<double> gathered = out.Values(Side::kGpu);
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<double> row = Values(table, {tokens[static_cast<size_t>(i)], 1});
    const auto begin = gathered.begin() + i * kHidden;
    EXPECT_EQ(std::vector<double>(begin, begin + kHidden), row) << i;
  }
  const Operand order = Twins::Of<int32_t>({count}, {0, 1, 3, 2, 5, 4});
  const Operand segments = Twins::Of<int32_t>({5}, {0, 7, (1 << 20) - 1, 1 << 20, (1 << 20) + 39});
  const Operand starts = Twins::Of<int32_t>({6}, {0, 1, 2, 3, 5, 6});
  Gpu().embedding().ScatterGrad(GpuStream(), {.dy = out[Side::kGpu],
                                              .order = order[Side::kGpu],
                                              .segment_token = segments[Side::kGpu],
                                              .segment_start = starts[Side::kGpu],
                                              .num_segments = 5,
                                              .dtable = gradient.tensor()});
  for (const int32_t token : {0, 7, (1 << 20) - 1, 1 << 20, (1 << 20) + 39}) {
    std::vector<double> expected = Values(table, {token, 1});
    if (token == 1 << 20) {
      for (double& x : expected) x *= 2;
    }
    EXPECT_EQ(Values(gradient, {token, 1}), expected) << token;
  }
  for (const double x : Values(gradient, {(1 << 20) + 1, 38})) ASSERT_EQ(x, 0);
}

TEST_F(LargeOperandsTest, ManyTokensAreGatheredAndScattered) {
  constexpr int64_t kRows = 1000;
  const Operand table = Twins(5).Random(DType::kBf16, {kRows, kHidden});
  std::vector<int32_t> tokens, order, segment_token, segment_start;
  for (int64_t t = 0; t < kMany; ++t) tokens.push_back(static_cast<int32_t>(t % kRows));
  for (int64_t token = 0; token < kRows; ++token) {
    segment_token.push_back(static_cast<int32_t>(token));
    segment_start.push_back(static_cast<int32_t>(order.size()));
    for (int64_t t = token; t < kMany; t += kRows) order.push_back(static_cast<int32_t>(t));
  }
  segment_start.push_back(static_cast<int32_t>(order.size()));
  const Operand ids = Twins::Of<int32_t>({kMany}, tokens);
  const Large out(DType::kBf16, kMany, kHidden);
  Gpu().embedding().Gather(
      GpuStream(), {.tokens = ids[Side::kGpu], .table = table[Side::kGpu], .out = out.tensor()});
  const std::vector<double> rows = table.Values(Side::kGpu);
  const auto row_of = [&](int64_t t) {
    const auto begin = rows.begin() + t % kRows * kHidden;
    return std::vector<double>(begin, begin + kHidden);
  };
  // Afterwards only the rows that are looked at are not zero.
  const Large dy(DType::kBf16, kMany, kHidden);
  dy.Zero();
  std::vector<double> expected(static_cast<size_t>(kRows * kHidden));
  for (const Rows& window : RowsOf(out)) {
    for (int64_t t = window.begin; t < window.begin + window.count; ++t) {
      ASSERT_EQ(Values(out, {t, 1}), row_of(t)) << t;
      Gpu().device().Copy(GpuStream(), dy.tensor().Rows(t, 1).data, out.tensor().Rows(t, 1).data,
                          kHidden * SizeOf(DType::kBf16));
      for (int64_t c = 0; c < kHidden; ++c)
        expected[static_cast<size_t>(t % kRows * kHidden + c)] += row_of(t)[static_cast<size_t>(c)];
    }
  }
  const Operand gradient = Twins::Output(DType::kF32, {kRows, kHidden});
  Gpu().vector().Fill(GpuStream(), gradient[Side::kGpu], 0);
  Gpu().embedding().ScatterGrad(
      GpuStream(), {.dy = dy.tensor(),
                    .order = Twins::Of<int32_t>({kMany}, order)[Side::kGpu],
                    .segment_token = Twins::Of<int32_t>({kRows}, segment_token)[Side::kGpu],
                    .segment_start = Twins::Of<int32_t>({kRows + 1}, segment_start)[Side::kGpu],
                    .num_segments = kRows,
                    .dtable = gradient[Side::kGpu]});
  EXPECT_EQ(gradient.Values(Side::kGpu), expected);
}

// Loss.

TEST_F(LargeOperandsTest, LossOfEveryRow) {
  constexpr int64_t kColumns = 50304, kReal = 50257;
  constexpr int64_t kRows = kTwoTo31 / kColumns + 9;
  for (const bool fused : {true, false}) {
    const Large logits(DType::kBf16, kRows, kColumns);
    logits.FillNormal(6, 2);
    std::vector<int32_t> labels;
    for (int64_t t = 0; t < kRows; ++t) labels.push_back(static_cast<int32_t>(t * 7919 % kReal));
    const Operand ids = Twins::Of<int32_t>({kRows}, labels);
    const Operand weight = Twins::Of<float>({kRows}, std::vector<float>(kRows, 1.0F));
    const Operand stats = Twins::Output(DType::kF32, {1, kRows, 3});
    const Operand sums = Twins::Of<double>({2}, {0, 0});
    const auto windows = RowsOf(logits);
    std::vector<Operand> taken;
    taken.reserve(windows.size());
    for (const Rows& rows : windows) taken.push_back(Take(logits, rows));
    const LossFinishArgs all{.logits = logits.tensor(),
                             .labels = ids[Side::kGpu],
                             .real_columns = kReal,
                             .stats = stats[Side::kGpu],
                             .weight = weight[Side::kGpu],
                             .seed = 1.0 / 64,
                             .sums = sums[Side::kGpu]};
    if (fused) {
      Gpu().loss().StatsFinish(GpuStream(), all);
    } else {
      Gpu().loss().Stats(GpuStream(), {.logits = all.logits,
                                       .labels = all.labels,
                                       .real_columns = kReal,
                                       .stats = all.stats.Reshaped({kRows, 3})});
      Gpu().loss().Finish(GpuStream(), all);
    }
    const std::vector<double> found = stats.Values(Side::kGpu);
    double loss = 0;
    for (size_t t = 0; t < static_cast<size_t>(kRows); ++t)
      loss += std::log(found[3 * t + 1]) + found[3 * t] - found[3 * t + 2];
    EXPECT_NEAR(sums.Values(Side::kGpu)[0], loss, 1e-6 * loss);
    EXPECT_EQ(sums.Values(Side::kGpu)[1], static_cast<double>(kRows));
    for (size_t w = 0; w < windows.size(); ++w) {
      const auto [begin, count] = windows[w];
      const auto of = [&, begin = begin, count = count](const auto& values) {
        return std::vector(values.begin() + begin, values.begin() + begin + count);
      };
      const Operand part_stats = Twins::Output(DType::kF32, {1, count, 3});
      const Operand part_sums = Twins::Of<double>({2}, {0, 0});
      const Operand part_ids = Twins::Of<int32_t>({count}, of(labels));
      BackendOf(Side::kCpu)
          .loss()
          .StatsFinish(
              StreamOf(Side::kCpu),
              {.logits = taken[w][Side::kCpu],
               .labels = part_ids[Side::kCpu],
               .real_columns = kReal,
               .stats = part_stats[Side::kCpu],
               .weight = Twins::Of<float>(
                   {count}, std::vector<float>(static_cast<size_t>(count), 1.0F))[Side::kCpu],
               .seed = 1.0 / 64,
               .sums = part_sums[Side::kCpu]});
      std::vector<float> part_found;
      for (int64_t i = 3 * begin; i < 3 * (begin + count); ++i)
        part_found.push_back(static_cast<float>(found[static_cast<size_t>(i)]));
      part_stats.SetBytes(Side::kGpu, part_found.data());
      ExpectClose(part_stats, Kind::kSum, DType::kF32, "stats of " + At(windows[w]));
      Retake(logits, windows[w], taken[w]);
      ExpectClose(taken[w], Kind::kSum, DType::kBf16, "dlogits of " + At(windows[w]));
    }
  }
}

}  // namespace
}  // namespace mt::kernels::cuda
