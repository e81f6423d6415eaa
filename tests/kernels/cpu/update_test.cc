// Square sums, AdamW and SGD against hand-computed and fp64 results, and the rules for skipped
// steps.
#include "kernels/ops/update.h"

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

TEST(SquareSumTest, AddsFiniteSquaresAndCountsTheRest) {
  Uniform random(41);
  for (const int64_t n : {int64_t{1}, int64_t{37}, int64_t{70001}}) {
    Array<float> g = random.Make<float>({n});
    double expected = 0;
    for (int64_t i = 0; i < n; ++i) expected += double{g[i]} * double{g[i]};
    Array<double> out({2}, 1.0), out3({2}, 1.0);
    Cpu(1).update().SquareSum(AnyStream(), {.gradient = g.tensor(), .out = out.tensor()});
    Cpu(3).update().SquareSum(AnyStream(), {.gradient = g.tensor(), .out = out3.tensor()});
    EXPECT_NEAR(out[0], 1 + expected, 1e-12 * expected);
    EXPECT_EQ(out[1], 1.0);
    EXPECT_TRUE(out == out3) << "same bits with any number of threads";
  }
}

TEST(SquareSumTest, NonFiniteElements) {
  Array<float> g({300}, 2.0F);
  g[0] = NAN;
  g[131] = INFINITY;
  g[299] = -INFINITY;
  Array<double> out({2});
  Cpu(2).update().SquareSum(AnyStream(), {.gradient = g.tensor(), .out = out.tensor()});
  EXPECT_EQ(out[0], 4.0 * 297);
  EXPECT_EQ(out[1], 3.0);
}

TEST(SquareSumTest, LargeFp32ValuesDoNotOverflow) {
  Array<float> g({2}, 3e38F);
  Array<double> out({2});
  Cpu(1).update().SquareSum(AnyStream(), {.gradient = g.tensor(), .out = out.tensor()});
  EXPECT_NEAR(out[0], 1.8e77, 1e71);
}

template <class T>
struct Shard {
  Array<T> g{{1}}, p{{1}, T{1}}, m{{1}}, v{{1}};
};

// Three steps computed with 40 decimal digits: p = 1, g = 0.5, -0.25, 2, lr 0.1, weight decay 0.01,
// beta 0.9 / 0.999, eps 1e-8. Gradients arrive scaled by 8 with factor 1/8.
template <class T>
void RunByHand(bool decay, const double (&expected_p)[3], double tolerance) {
  const double gradient[] = {0.5, -0.25, 2};
  const double expected_m[] = {0.05, 0.02, 0.218},
               expected_v[] = {0.00025, 0.00031225, 0.00431193775};
  Shard<T> s;
  StepScalars scalars;
  scalars.lr = 0.1;
  scalars.weight_decay = 0.01;
  scalars.factor = 0.125;
  for (int t = 0; t < 3; ++t) {
    s.g[0] = static_cast<T>(8 * gradient[t]);
    scalars.bias_correction1 = 1 - std::pow(0.9, t + 1);
    scalars.bias_correction2 = 1 - std::pow(0.999, t + 1);
    Cpu(1).update().AdamW(AnyStream(), {.gradient = s.g.tensor(),
                                        .master = s.p.tensor(),
                                        .m = s.m.tensor(),
                                        .v = s.v.tensor(),
                                        .decay = decay,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .eps = 1e-8,
                                        .scalars = &scalars});
    EXPECT_NEAR(double{s.m[0]}, expected_m[t], tolerance);
    EXPECT_NEAR(double{s.v[0]}, expected_v[t], tolerance);
    EXPECT_NEAR(double{s.p[0]}, expected_p[t], tolerance) << "step " << t + 1;
  }
}

constexpr double kWithDecay[] = {0.89900000199999996, 0.87146729870584617, 0.80353106722844706};
// Without decay each step is the same but for lr * wd * p, so: 1 - 0.1 * (sum of the ratios).
constexpr double kWithoutDecay[] = {kWithDecay[0] + 0.001,
                                    kWithDecay[1] + 0.001 * (1 + kWithDecay[0]),
                                    kWithDecay[2] + 0.001 * (1 + kWithDecay[0] + kWithDecay[1])};

TEST(AdamWTest, ThreeStepsByHandInFp64) {
  RunByHand<double>(true, kWithDecay, 2e-15);
  RunByHand<double>(false, kWithoutDecay, 2e-15);
}

TEST(AdamWTest, ThreeStepsByHandInFp32) {
  RunByHand<float>(true, kWithDecay, 3e-7);
  RunByHand<float>(false, kWithoutDecay, 3e-7);
}

TEST(AdamWTest, ManyElementsFollowFp64AndTheThreadsDoNotMatter) {
  constexpr int64_t kN = 50001;
  Uniform random(42);
  Array<float> g = random.Make<float>({kN}), p = random.Make<float>({kN}),
               m = random.Make<float>({kN});
  Array<float> v = random.Make<float>({kN});
  for (int64_t i = 0; i < kN; ++i) v[i] = v[i] * v[i];
  Array<double> g64 = Convert<double>(g), p64 = Convert<double>(p), m64 = Convert<double>(m),
                v64 = Convert<double>(v);
  Array<float> p3 = p, m3 = m, v3 = v;
  StepScalars scalars;
  scalars.lr = 1e-3;
  scalars.weight_decay = 0.1;
  scalars.bias_correction1 = 0.5;
  scalars.bias_correction2 = 0.25;
  AdamWArgs args{.gradient = g.tensor(),
                 .master = p.tensor(),
                 .m = m.tensor(),
                 .v = v.tensor(),
                 .decay = true,
                 .scalars = &scalars};
  Cpu(1).update().AdamW(AnyStream(), args);
  args.master = p3.tensor();
  args.m = m3.tensor();
  args.v = v3.tensor();
  Cpu(3).update().AdamW(AnyStream(), args);
  EXPECT_TRUE(p == p3 && m == m3 && v == v3);
  Cpu(1).update().AdamW(AnyStream(), {.gradient = g64.tensor(),
                                      .master = p64.tensor(),
                                      .m = m64.tensor(),
                                      .v = v64.tensor(),
                                      .decay = true,
                                      .scalars = &scalars});
  ExpectNear(p, p64, 1e-6, "p");
  ExpectNear(m, m64, 1e-6, "m");
  ExpectNear(v, v64, 1e-6, "v");
}

TEST(AdamWTest, ASkippedStepWritesNothing) {
  Shard<float> s;
  s.g[0] = NAN;
  StepScalars scalars;
  scalars.skip = 1;
  Cpu(1).update().AdamW(AnyStream(), {.gradient = s.g.tensor(),
                                      .master = s.p.tensor(),
                                      .m = s.m.tensor(),
                                      .v = s.v.tensor(),
                                      .scalars = &scalars});
  EXPECT_EQ(s.p[0], 1.0F);
  EXPECT_EQ(s.m[0], 0.0F);
}

TEST(SgdTest, ThreeStepsByHand) {
  // mu 0.5, lr 0.1, decoupled weight decay 0.01; gradients arrive scaled by 8.
  const double gradient[] = {0.5, -0.25, 2};
  const double expected_u[] = {0.5, 0, 2};
  Shard<double> s;
  StepScalars scalars;
  scalars.lr = 0.1;
  scalars.weight_decay = 0.01;
  scalars.factor = 0.125;
  double p = 1;
  for (int t = 0; t < 3; ++t) {
    s.g[0] = 8 * gradient[t];
    Cpu(1).update().Sgd(AnyStream(), {.gradient = s.g.tensor(),
                                      .master = s.p.tensor(),
                                      .momentum = s.m.tensor(),
                                      .decay = true,
                                      .mu = 0.5,
                                      .scalars = &scalars});
    p -= 0.1 * (expected_u[t] + 0.01 * p);
    EXPECT_EQ(s.m[0], expected_u[t]);
    EXPECT_NEAR(s.p[0], p, 1e-16);
  }
  scalars.skip = 1;
  s.g[0] = kNan;
  Cpu(1).update().Sgd(AnyStream(), {.gradient = s.g.tensor(),
                                    .master = s.p.tensor(),
                                    .momentum = s.m.tensor(),
                                    .scalars = &scalars});
  EXPECT_NEAR(s.p[0], p, 1e-16) << "a skipped step writes nothing";
  EXPECT_EQ(s.m[0], 2);
}

TEST(SgdTest, WithoutMomentumItNeedsNoBufferAndTheThreadsDoNotMatter) {
  constexpr int64_t kN = 50001;
  Uniform random(43);
  Array<float> g = random.Make<float>({kN}), p = random.Make<float>({kN}), plain = p, p3 = p;
  Array<float> momentum({kN});
  StepScalars scalars;
  scalars.lr = 0.25;
  SgdArgs args{.gradient = g.tensor(),
               .master = p.tensor(),
               .momentum = momentum.tensor(),
               .decay = true,
               .mu = 0,
               .scalars = &scalars};
  Cpu(1).update().Sgd(AnyStream(), args);
  args.master = p3.tensor();
  Cpu(3).update().Sgd(AnyStream(), args);
  args.master = plain.tensor();
  args.momentum = {};
  Cpu(1).update().Sgd(AnyStream(), args);
  EXPECT_TRUE(p == p3 && p == plain && momentum == g);
}

TEST(AdvanceTest, RunsTheSharedFunction) {
  StepScalars by_op, by_hand;
  const EndOfStep vector{.sum_squares = 4, .loss = 8, .tokens = 4};
  const StepConstants constants{.max_lr = 1,
                                .min_lr = 0.1,
                                .warmup_samples = 4,
                                .decay_samples = 100,
                                .clip_grad = 1,
                                .batch_samples = 2,
                                .nominal_tokens = 4};
  Cpu(1).update().Advance(AnyStream(), &by_op, &vector, constants);
  AdvanceStepScalars(&by_hand, vector, constants);
  EXPECT_EQ(by_op.factor, by_hand.factor);
  EXPECT_EQ(by_op.adam_step, 1);
  EXPECT_EQ(by_op.schedule_samples, 2);
}

}  // namespace
}  // namespace mt::kernels::cpu
