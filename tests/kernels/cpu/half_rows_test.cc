// 16-bit storage in the ops that work on rows: norms, activations, rotation, loss, embedding,
// vector ops. Masks are those of f32; statistics and parameter gradients are f32.
#include "kernels/ops/backend.h"
#include "tests/kernels/cpu/half_test.h"

namespace mt::kernels::cpu {
namespace {

template <class H>
class HalfRowsTest : public testing::Test {};
TYPED_TEST_SUITE(HalfRowsTest, HalfTypes);

constexpr int64_t kLength = 21, kB = 2, kAllTokens = kLength * kB, kHidden = 37;

struct NormCase {
  NormKind kind = NormKind::kLayerNorm;
  double dropout = 0.2;
  bool norm = true;
};

// Operands of AddNorm and its gradient, twice.
template <class H>
struct NormProblem {
  explicit NormProblem(const NormCase& c) : config(c) {
    for (int64_t i = 0; i < kB; ++i) samples[i] = 99 + i;
  }
  Dropout MakeDropout() {
    if (config.dropout == 0) return {};
    return {.rate = MakeDropoutRate(config.dropout),
            .key = 77,
            .samples = samples.tensor(),
            .positions = positions.tensor()};
  }
  // of(pair) is the tensor of one type.
  template <class Of>
  void Forward(const Of& of, Array<float>* mean, Array<float>* rstd) {
    AddNormArgs a{.residual = of(residual),
                  .bias = of(bias),
                  .position_table = of(table),
                  .positions = positions.tensor(),
                  .batch = kB,
                  .dropout = MakeDropout(),
                  .kind = config.kind,
                  .residual_out = of(out)};
    a.partials.count = 2;
    a.partials.tensor[0] = of(partial0);
    a.partials.tensor[1] = of(partial1);
    if (config.norm) SetNorm(of, mean, rstd, &a);
    Cpu(2).add_norm().AddNorm(AnyStream(), a);
  }
  template <class Of, class Args>
  void SetNorm(const Of& of, Array<float>* mean, Array<float>* rstd, Args* a) {
    a->gain = of(gain);
    if constexpr (std::is_same_v<Args, AddNormArgs>) {
      if (config.kind == NormKind::kLayerNorm) a->shift = of(shift);
      a->y = of(y);
    }
    if (config.kind == NormKind::kLayerNorm) a->mean = mean->tensor();
    a->rstd = rstd->tensor();
  }
  template <class Of>
  void Backward(const Of& of, Array<float>* mean, Array<float>* rstd, Array<float>* sums) {
    AddNormGradArgs a{.dresidual_in = of(dresidual_in),
                      .residual_out = of(out),
                      .kind = config.kind,
                      .dropout = MakeDropout(),
                      .batch = kB,
                      .dresidual = of(dresidual),
                      .dbranch = of(config.dropout == 0 ? dresidual : dbranch),
                      .dbias = Tensor{sums->data(), DType::kF32, {kHidden}}};
    if (config.norm) {
      a.dy.count = 2;
      a.dy.tensor[0] = of(dy0);
      a.dy.tensor[1] = of(dy1);
      SetNorm(of, mean, rstd, &a);
      a.dgain = Tensor{sums->data() + kHidden, DType::kF32, {kHidden}};
      if (config.kind == NormKind::kLayerNorm) {
        a.dshift = Tensor{sums->data() + 2 * kHidden, DType::kF32, {kHidden}};
      }
    }
    Scratch256 scratch(Cpu(2).add_norm().WorkspaceBytes(a));
    a.workspace = scratch.workspace();
    Cpu(2).add_norm().AddNormGrad(AnyStream(), a);
  }

  NormCase config;
  Uniform random{81};
  Pair<H> residual{&random, {kAllTokens, kHidden}}, partial0{&random, {kAllTokens, kHidden}},
      partial1{&random, {kAllTokens, kHidden}}, bias{&random, {kHidden}},
      table{&random, {kLength, kHidden}}, gain{&random, {kHidden}}, shift{&random, {kHidden}},
      dy0{&random, {kAllTokens, kHidden}}, dy1{&random, {kAllTokens, kHidden}},
      dresidual_in{&random, {kAllTokens, kHidden}};
  Pair<H> out{{kAllTokens, kHidden}}, y{{kAllTokens, kHidden}}, dresidual{{kAllTokens, kHidden}},
      dbranch{{kAllTokens, kHidden}};
  Array<int32_t> positions = Ints({kLength}, [](int64_t i) { return i; });
  Array<int64_t> samples{{kB}};
};

constexpr auto kHalfOf = [](auto& pair) { return pair.half.tensor(); };
constexpr auto kWideOf = [](auto& pair) { return pair.wide.tensor(); };

TYPED_TEST(HalfRowsTest, AddNormRoundsOnceAndNormsWhatItStored) {
  for (const NormCase& c : {NormCase{}, NormCase{.dropout = 0},
                            NormCase{.kind = NormKind::kRmsNorm}, NormCase{.norm = false}}) {
    NormProblem<TypeParam> p(c);
    Array<float> mean({kAllTokens}), rstd({kAllTokens}), wide_mean({kAllTokens}),
        wide_rstd({kAllTokens});
    p.Forward(kHalfOf, &mean, &rstd);
    p.Forward(kWideOf, &wide_mean, &wide_rstd);
    ExpectRounded(p.out, "residual_out");
    if (c.norm) {  // y and the statistics are those of the stored residual
      p.out.Refresh();
      Cpu(1).add_norm().AddNorm(
          AnyStream(), {.residual = p.out.wide.tensor(),
                        .kind = c.kind,
                        .gain = p.gain.wide.tensor(),
                        .shift = c.kind == NormKind::kLayerNorm ? p.shift.wide.tensor() : Tensor{},
                        .residual_out = p.out.wide.tensor(),
                        .y = p.y.wide.tensor(),
                        .mean = wide_mean.tensor(),
                        .rstd = wide_rstd.tensor()});
      ExpectRounded(p.y, "y");
      ExpectSame(rstd, wide_rstd, "rstd");
      if (c.kind == NormKind::kLayerNorm) ExpectSame(mean, wide_mean, "mean");
    }
    p.out.Refresh();
    Array<float> sums({3 * kHidden}), wide_sums({3 * kHidden});
    p.Backward(kHalfOf, &mean, &rstd, &sums);
    p.Backward(kWideOf, &mean, &rstd, &wide_sums);
    ExpectRounded(p.dresidual, "dresidual");
    if (c.dropout > 0) ExpectRounded(p.dbranch, "dbranch");
    ExpectSame(sums, wide_sums, "dbias, dgain, dshift");
  }
}

TYPED_TEST(HalfRowsTest, Activations) {
  Uniform random(82);
  for (const ActKind kind :
       {ActKind::kGelu, ActKind::kSwiglu, ActKind::kGeglu, ActKind::kRelu2, ActKind::kGeluErf}) {
    const int64_t columns = PreColumns(kind, kHidden);
    Pair<TypeParam> pre(&random, {kAllTokens, columns}, 5), dy(&random, {kAllTokens, kHidden});
    Pair<TypeParam> y({kAllTokens, kHidden}), dpre({kAllTokens, columns});
    const ActOps& act = Cpu(2).act();
    act.Act(AnyStream(), {.kind = kind, .pre = pre.half.tensor(), .y = y.half.tensor()});
    act.Act(AnyStream(), {.kind = kind, .pre = pre.wide.tensor(), .y = y.wide.tensor()});
    ExpectRounded(y, "y");
    act.ActGrad(AnyStream(), {.kind = kind,
                              .dy = dy.half.tensor(),
                              .pre = pre.half.tensor(),
                              .dpre = dpre.half.tensor()});
    act.ActGrad(AnyStream(), {.kind = kind,
                              .dy = dy.wide.tensor(),
                              .pre = pre.wide.tensor(),
                              .dpre = dpre.wide.tensor()});
    ExpectRounded(dpre, "dpre");
    if (IsGated(kind)) continue;
    act.ActGrad(AnyStream(), {.kind = kind,  // in place
                              .dy = dy.half.tensor(),
                              .pre = pre.half.tensor(),
                              .dpre = dy.half.tensor()});
    EXPECT_TRUE(dy.half == dpre.half);
  }
}

TYPED_TEST(HalfRowsTest, Rotation) {
  constexpr int64_t kA = 3, kG = 1, kD = 20;
  Uniform random(83);
  Array<float> table({kLength, 10});
  FillRopeTable({.head_dim = kD, .percent = 0.5}, table.tensor());
  Array<int32_t> positions = Ints({kLength}, [](int64_t i) { return i; });
  Pair<TypeParam> q_gain(&random, {kD}), k_gain(&random, {kD});
  for (const bool norm : {false, true}) {
    Pair<TypeParam> qkv(&random, {kAllTokens, (kA + 2 * kG) * kD}), dqkv(&random, qkv.half.shape());
    Pair<TypeParam> input({kAllTokens, (kA + kG) * kD});
    Array<float> rstd({kAllTokens, kA + kG}), wide_rstd = rstd, gains({2 * kD}), wide_gains = gains;
    const auto run = [&](const auto& of, Array<float>* r, Array<float>* g) {
      RotateShape shape{.batch = kB,
                        .a = kA,
                        .g = kG,
                        .d = kD,
                        .table = table.tensor(),
                        .positions = positions.tensor()};
      if (norm) {
        shape.q_gain = of(q_gain);
        shape.k_gain = of(k_gain);
      }
      Cpu(2).rope().Rotate(
          AnyStream(), {.shape = shape, .qkv = of(qkv), .input = of(input), .rstd = r->tensor()});
      RotateGradArgs a{.shape = shape,
                       .dqkv = of(dqkv),
                       .input = of(input),
                       .rstd = r->tensor(),
                       .dq_gain = Tensor{g->data(), DType::kF32, {kD}},
                       .dk_gain = Tensor{g->data() + kD, DType::kF32, {kD}}};
      Scratch256 scratch(Cpu(2).rope().WorkspaceBytes(a));
      a.workspace = scratch.workspace();
      Cpu(2).rope().RotateGrad(AnyStream(), a);
    };
    run(kHalfOf, &rstd, &gains);
    run(kWideOf, &wide_rstd, &wide_gains);
    ExpectRounded(qkv, "qkv");
    ExpectRounded(dqkv, "dqkv");
    ExpectSame(rstd, wide_rstd, "rstd");
    ExpectSame(gains, wide_gains, "gains");
  }
}

TYPED_TEST(HalfRowsTest, LossKeepsItsStatisticsInF32) {
  constexpr int64_t kV = 70, kReal = 67;
  Uniform random(84);
  Pair<TypeParam> logits(&random, {kAllTokens, kV}, 6);
  Array<int32_t> labels = Ints({kAllTokens}, [](int64_t i) { return i * 5 % kReal; });
  Array<float> weight({kAllTokens}, 1.0F), stats({1, kAllTokens, 3}), wide_stats = stats;
  weight[3] = 0;
  Array<double> sums({2}), wide_sums({2});
  const double scale = 1024;
  const auto run = [&](const Tensor& x, Array<float>* s, Array<double>* total) {
    Cpu(2).loss().StatsFinish(AnyStream(), {.logits = x,
                                            .labels = labels.tensor(),
                                            .real_columns = kReal,
                                            .stats = s->tensor(),
                                            .weight = weight.tensor(),
                                            .seed = 1.0 / kAllTokens,
                                            .loss_scale = &scale,
                                            .sums = total->tensor()});
  };
  run(logits.half.tensor(), &stats, &sums);
  run(logits.wide.tensor(), &wide_stats, &wide_sums);
  ExpectRounded(logits, "dlogits");
  ExpectSame(stats, wide_stats, "stats");
  EXPECT_TRUE(sums == wide_sums);
}

TYPED_TEST(HalfRowsTest, EmbeddingCopiesRowsAndSumsThemInF32) {
  Uniform random(85);
  Pair<TypeParam> table(&random, {9, kHidden}), dy(&random, {kAllTokens, kHidden}),
      out({kAllTokens, kHidden});
  Array<int32_t> tokens =
      Ints({kAllTokens}, [](int64_t i) { return i % 11; });  // 9 and 10: elsewhere
  const EmbeddingOps& ops = Cpu(2).embedding();
  for (const bool half : {true, false}) {
    ops.Gather(AnyStream(), {.tokens = tokens.tensor(),
                             .table = half ? table.half.tensor() : table.wide.tensor(),
                             .out = half ? out.half.tensor() : out.wide.tensor()});
  }
  ExpectRounded(out, "rows");
  // Tokens i % 11 in order: rows t, t + 11, ...
  Array<int32_t> order({kAllTokens}), start({12}), token = Ints({11}, [](int64_t i) { return i; });
  int32_t at = 0;
  for (int64_t t = 0; t < 11; ++t) {
    start[t] = at;
    for (int64_t row = t; row < kAllTokens; row += 11) order[at++] = static_cast<int32_t>(row);
  }
  start[11] = at;
  Array<int32_t> positions = Ints({kLength}, [](int64_t i) { return i; });
  Array<float> dtable({9, kHidden}, 1.0F), dposition({kLength, kHidden}), wide = dtable,
                                                                          wide_position = dposition;
  for (const bool half : {true, false}) {
    ops.ScatterGrad(AnyStream(), {.dy = half ? dy.half.tensor() : dy.wide.tensor(),
                                  .order = order.tensor(),
                                  .segment_token = token.tensor(),
                                  .segment_start = start.tensor(),
                                  .num_segments = 11,
                                  .dtable = half ? dtable.tensor() : wide.tensor(),
                                  .positions = positions.tensor(),
                                  .batch = kB,
                                  .dposition = half ? dposition.tensor() : wide_position.tensor()});
  }
  ExpectSame(dtable, wide, "dtable");
  ExpectSame(dposition, wide_position, "dposition");
}

TYPED_TEST(HalfRowsTest, VectorsRoundOnce) {
  Uniform random(86);
  Pair<TypeParam> a(&random, {kAllTokens, kHidden}), b(&random, {kAllTokens, kHidden}),
      c(&random, {kAllTokens, kHidden}), sum({kAllTokens, kHidden});
  Array<float> columns({kHidden}, 1.0F), wide_columns = columns;
  const VectorOps& ops = Cpu(2).vector();
  for (const bool half : {true, false}) {
    const auto of = [half](Pair<TypeParam>& p) { return half ? p.half.tensor() : p.wide.tensor(); };
    Partials partials(of(a));
    partials.tensor[1] = of(b);
    partials.tensor[2] = of(c);
    partials.count = 3;
    ops.SumPartials(AnyStream(), of(sum), partials);
    ops.AddTo(AnyStream(), of(a), of(b));
    ops.RowSum(AnyStream(), of(c), GradMode::kAdd, (half ? columns : wide_columns).tensor());
  }
  ExpectRounded(sum, "sum of partials");
  ExpectRounded(a, "a + b");
  ExpectSame(columns, wide_columns, "column sums");
}

}  // namespace
}  // namespace mt::kernels::cpu
