// Activations against their definitions, and the exp that fp32 loops use against libm's.
#include "kernels/ops/act.h"

#include <bit>

#include "kernels/core/normal_tail.h"
#include "kernels/cpu/loops/fast_math.h"
#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(ExpTest, IsWithinOneAndAHalfUlpOverItsRange) {
  double worst = 0;
  // Every 97th float of each sign: about 22 million values.
  for (uint32_t bits = 0x20000000U; bits < 0x42B00000U; bits += 97) {
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      if (x < -87.3F) continue;
      const double exact = std::exp(double{x});
      const auto rounded = static_cast<float>(exact);
      const double ulp = double{std::nextafter(rounded, INFINITY)} - double{rounded};
      worst = std::max(worst, std::abs(double{Exp(x)} - exact) / ulp);
    }
  }
  EXPECT_LT(worst, 1.5);
}

TEST(ExpTest, EndsOfTheRange) {
  EXPECT_EQ(Exp(0.0F), 1.0F);
  EXPECT_EQ(Exp(-0.0F), 1.0F);
  EXPECT_EQ(Exp(-INFINITY), 0.0F);
  EXPECT_EQ(Exp(-88.0F), 0.0F);
  EXPECT_GT(Exp(-87.3F), 0.0F);
  EXPECT_EQ(Exp(89.0F), Exp(88.0F));
  EXPECT_EQ(Exp(INFINITY), Exp(88.0F));
  EXPECT_TRUE(std::isnan(Exp(NAN)));
}

TEST(ActTest, GeluMatchesItsDefinition) {
  constexpr int64_t kN = 20001;
  Array<double> x({kN}), y({kN});
  for (int64_t i = 0; i < kN; ++i) x[i] = -10 + 20.0 * static_cast<double>(i) / (kN - 1);
  Cpu(2).act().Act(AnyStream(), {.pre = x.tensor(), .y = y.tensor()});
  for (int64_t i = 0; i < kN; ++i) {
    // The definition cancels at negative x; its own error is 1e-16 of |x|.
    ASSERT_NEAR(y[i], Gelu(x[i]), 1e-15 * std::max(1.0, std::abs(x[i]))) << x[i];
  }
}

TEST(ActTest, Fp32FollowsFp64) {
  constexpr int64_t kN = 20001;
  Array<float> x({kN}), y({kN}), dx({kN}), ones({kN}, 1.0F);
  Array<double> y64({kN}), dx64({kN}), ones64({kN}, 1.0);
  for (int64_t i = 0; i < kN; ++i) x[i] = -6 + 12.0F * static_cast<float>(i) / (kN - 1);
  Array<double> x64 = Convert<double>(x);
  const ActOps& act = Cpu(2).act();
  act.Act(AnyStream(), {.pre = x.tensor(), .y = y.tensor()});
  act.Act(AnyStream(), {.pre = x64.tensor(), .y = y64.tensor()});
  act.ActGrad(AnyStream(), {.dy = ones.tensor(), .pre = x.tensor(), .dpre = dx.tensor()});
  act.ActGrad(AnyStream(), {.dy = ones64.tensor(), .pre = x64.tensor(), .dpre = dx64.tensor()});
  for (int64_t i = 0; i < kN; ++i) {
    // Relative: also deep in the negative tail, where the values are small.
    ASSERT_NEAR(double{y[i]}, y64[i], 1e-5 * std::abs(y64[i]) + 1e-30) << x[i];
    ASSERT_NEAR(double{dx[i]}, dx64[i], 1e-6) << x[i];
  }
}

// The tail's formula against libm's erfc, over all of the floats that it is fitted for.
TEST(NormalTailTest, IsTheTailOfTheNormalDistribution) {
  double worst = 0, worst_at = 0;
  for (int i = 0; i <= 143'000; ++i) {
    const float a = 1e-4F * static_cast<float>(i);
    const double exact = std::erfc(double{a} / M_SQRT2) / 2 * std::exp(double{a} * a / 2);
    const double k = 1.0 / (1.0 + double{kNormalTailRate} * a);
    const double error = double{NormalTailOverDensity(static_cast<float>(k))} / exact - 1;
    if (std::abs(error) <= worst) continue;
    worst = std::abs(error);
    worst_at = a;
  }
  EXPECT_LT(worst, 5e-7) << worst_at;
}

// Relative: also deep in the negative tail, where 1 + erf would have lost every digit. The
// exponent's rounding is 2^-24 of up to 60 at x = -11.
TEST(ActTest, ExactGeluKeepsItsDigitsInTheTail) {
  constexpr int64_t kN = 14001;
  Array<float> x({kN}), y({kN}), dx({kN}), ones({kN}, 1.0F);
  for (int64_t i = 0; i < kN; ++i) x[i] = -11 + 14.0F * static_cast<float>(i) / (kN - 1);
  const ActOps& act = Cpu(2).act();
  constexpr ActKind kKind = ActKind::kGeluErf;
  act.Act(AnyStream(), {.kind = kKind, .pre = x.tensor(), .y = y.tensor()});
  act.ActGrad(AnyStream(),
              {.kind = kKind, .dy = ones.tensor(), .pre = x.tensor(), .dpre = dx.tensor()});
  for (int64_t i = 0; i < kN; ++i) {
    const double at = x[i], below = std::erfc(-at / M_SQRT2) / 2;
    const double density = std::exp(-at * at / 2) / std::sqrt(2 * M_PI);
    ASSERT_NEAR(y[i], at * below, 5e-6 * std::abs(at * below)) << at;
    ASSERT_NEAR(dx[i], below + at * density, 5e-6 * (below + std::abs(at) * density)) << at;
  }
}

TEST(ActTest, GeluGradIsTheGradient) {
  Uniform random(4);
  Array<double> x = random.Make<double>({37}, 4), weight = random.Make<double>({37}), y({37});
  const auto loss = [&] {
    Cpu(1).act().Act(AnyStream(), {.pre = x.tensor(), .y = y.tensor()});
    return WeightedSum(weight, y);
  };
  Array<double> dx = weight;  // in place
  Cpu(1).act().ActGrad(AnyStream(), {.dy = dx.tensor(), .pre = x.tensor(), .dpre = dx.tensor()});
  ExpectGradient(x, loss, dx, "x");
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

// One element of y from its gate (or only input) and its up element.
double Definition(ActKind kind, double x, double up) {
  switch (kind) {
    case ActKind::kGelu:
      return Gelu(x);
    case ActKind::kSwiglu:
      return Silu(x) * up;
    case ActKind::kGeglu:
      return Gelu(x) * up;
    case ActKind::kRelu2:
      return x > 0 ? x * x : 0;
    case ActKind::kGeluErf:
      return x * std::erfc(-x / M_SQRT2) / 2;
  }
  return kNan;
}

class ActKindTest : public testing::TestWithParam<ActKind> {};

TEST_P(ActKindTest, MatchesItsDefinitionAndTheGradientItsDifferences) {
  constexpr int64_t kRows = 5, kN = 13;
  const ActKind kind = GetParam();
  const int64_t columns = PreColumns(kind, kN);
  Uniform random(5);
  Array<double> pre = random.Make<double>({kRows, columns}, 4), y({kRows, kN}),
                dy = random.Make<double>({kRows, kN}), dpre({kRows, columns}, kNan);
  const auto loss = [&] {
    Cpu(2).act().Act(AnyStream(), {.kind = kind, .pre = pre.tensor(), .y = y.tensor()});
    return WeightedSum(dy, y);
  };
  loss();
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t at = i / kN * columns + i % kN;
    const double up = IsGated(kind) ? pre[at + kN] : kNan;
    ASSERT_NEAR(y[i], Definition(kind, pre[at], up), 1e-14) << i;
  }
  Cpu(2).act().ActGrad(
      AnyStream(), {.kind = kind, .dy = dy.tensor(), .pre = pre.tensor(), .dpre = dpre.tensor()});
  ExpectGradient(pre, loss, dpre, "pre");
}

TEST_P(ActKindTest, Fp32FollowsFp64AndTheThreadsDoNotMatter) {
  constexpr int64_t kRows = 30, kN = 1500;
  const ActKind kind = GetParam();
  const int64_t columns = PreColumns(kind, kN);
  Uniform random(6);
  Array<float> pre = random.Make<float>({kRows, columns}, 8), y({kRows, kN}),
               dy = random.Make<float>({kRows, kN}), dpre({kRows, columns});
  Array<double> pre64 = Convert<double>(pre), dy64 = Convert<double>(dy), y64({kRows, kN}),
                dpre64({kRows, columns});
  Array<float> y1 = y, dpre1 = dpre;
  for (const int threads : {1, 3}) {
    const ActOps& act = Cpu(threads).act();
    act.Act(AnyStream(), {.kind = kind, .pre = pre.tensor(), .y = y.tensor()});
    act.ActGrad(AnyStream(),
                {.kind = kind, .dy = dy.tensor(), .pre = pre.tensor(), .dpre = dpre.tensor()});
    if (threads == 1) {
      y1 = y;
      dpre1 = dpre;
    }
  }
  EXPECT_TRUE(y == y1 && dpre == dpre1);
  const ActOps& act = Cpu(1).act();
  act.Act(AnyStream(), {.kind = kind, .pre = pre64.tensor(), .y = y64.tensor()});
  act.ActGrad(AnyStream(),
              {.kind = kind, .dy = dy64.tensor(), .pre = pre64.tensor(), .dpre = dpre64.tensor()});
  ExpectNear(y, y64, 1e-6, "y");
  ExpectNear(dpre, dpre64, 1e-6, "dpre");
}

TEST_P(ActKindTest, FarInputsHaveFiniteGradientsAndNanStaysNan) {
  const ActKind kind = GetParam();
  const int64_t columns = PreColumns(kind, 1);
  for (const double x : {-1e3, -200.0, 1e3, kNan}) {
    Array<double> pre({1, columns}, 1.0), dy({1, 1}, 1.0), y({1, 1}), dpre({1, columns});
    pre[0] = x;
    Cpu(1).act().Act(AnyStream(), {.kind = kind, .pre = pre.tensor(), .y = y.tensor()});
    Cpu(1).act().ActGrad(
        AnyStream(), {.kind = kind, .dy = dy.tensor(), .pre = pre.tensor(), .dpre = dpre.tensor()});
    EXPECT_EQ(std::isfinite(y[0]), std::isfinite(x)) << x;
    EXPECT_EQ(std::isfinite(dpre[0]), std::isfinite(x)) << x;
    if (x < 0) {
      EXPECT_NEAR(dpre[0], 0, 1e-80) << x;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ActKindTest,
                         testing::Values(ActKind::kGelu, ActKind::kSwiglu, ActKind::kGeglu,
                                         ActKind::kRelu2, ActKind::kGeluErf));

TEST(ActTest, NonFiniteInputsStayVisible) {
  Array<float> x({3}), y({3});
  x[0] = NAN;
  x[1] = INFINITY;
  x[2] = -INFINITY;
  Cpu(1).act().Act(AnyStream(), {.pre = x.tensor(), .y = y.tensor()});
  for (int64_t i = 0; i < 3; ++i) EXPECT_FALSE(std::isfinite(y[i])) << i;
}

}  // namespace
}  // namespace mt::kernels::cpu
