// Rotary embedding and QK norm against a direct evaluation of their contract with complex numbers,
// their gradients against central differences, and tables against the formulas in another form.
// Legend as in kernels/ops/rope.h.
#include "kernels/ops/rope.h"

#include <complex>
#include <cstring>

#include "common/base/runs.h"
#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

struct RopeCase {
  int64_t s = 5, b = 2, a = 4, g = 2, d = 6;
  double percent = 1;
  bool rotate = true, norm = false, one_plus = false;
  int64_t logical_d = 0;
  bool own_positions = false;  // of each row
};

constexpr int64_t kPositions = 50;

template <class T>
struct RopeProblem {
  explicit RopeProblem(const RopeCase& c)
      : config(c),
        table({kPositions, std::max<int64_t>(RotatedChannels(Config()), 2)}),
        positions(Ints({c.own_positions ? c.s * c.b : c.s},
                       [](int64_t i) { return 7 * i % kPositions; })) {
    Uniform random(71);
    const Shape wide{c.s * c.b, (c.a + 2 * c.g) * c.d};
    qkv = random.Make<T>(wide);
    dqkv = random.Make<T>(wide);
    q_gain = random.Make<T>({c.d});
    k_gain = random.Make<T>({c.d});
    input = Array<T>({wide[0], (c.a + c.g) * c.d}, static_cast<T>(kNan));
    rstd = Array<T>({wide[0], c.a + c.g}, static_cast<T>(kNan));
    dq_gain = dk_gain = Array<T>({c.d}, static_cast<T>(kNan));
    if (c.rotate) FillRopeTable(Config(), table.tensor());
  }
  RopeConfig Config() const {
    const int64_t d = config.logical_d > 0 ? config.logical_d : config.d;
    return {.head_dim = d, .percent = config.percent, .base = 100};
  }
  RotateShape MakeShape() {
    RotateShape shape{.batch = config.b,
                      .a = config.a,
                      .g = config.g,
                      .d = config.d,
                      .logical_d = config.logical_d,
                      .one_plus = config.one_plus};
    if (config.rotate) {
      shape.table = table.tensor();
      shape.positions = positions.tensor();
    }
    if (config.norm) {
      shape.q_gain = q_gain.tensor();
      shape.k_gain = k_gain.tensor();
    }
    return shape;
  }
  void Forward(int threads) {
    RotateArgs a{.shape = MakeShape(), .qkv = qkv.tensor()};
    if (config.norm) {
      a.input = input.tensor();
      a.rstd = rstd.tensor();
    }
    Cpu(threads).rope().Rotate(AnyStream(), a);
  }
  void Grad(int threads, GradMode mode = GradMode::kOverwrite) {
    RotateGradArgs a{.shape = MakeShape(), .dqkv = dqkv.tensor(), .mode = mode};
    if (config.norm) {
      a.input = input.tensor();
      a.rstd = rstd.tensor();
      a.dq_gain = dq_gain.tensor();
      a.dk_gain = dk_gain.tensor();
    }
    Scratch256 scratch(Cpu(threads).rope().WorkspaceBytes(a));
    a.workspace = scratch.workspace();
    Cpu(threads).rope().RotateGrad(AnyStream(), a);
  }

  RopeCase config;
  Array<T> table;
  Array<int32_t> positions;
  Array<T> qkv{{1}}, dqkv{{1}}, q_gain{{1}}, k_gain{{1}}, input{{1}}, rstd{{1}}, dq_gain{{1}},
      dk_gain{{1}};
};

// One head [d] after norm and rotation, by the definition.
std::vector<double> Definition(const RopeProblem<double>& p, int64_t row, int64_t head) {
  const RopeCase& c = p.config;
  const int64_t width = (c.a + 2 * c.g) * c.d;
  std::vector<double> x(static_cast<size_t>(c.d));
  double squares = 0;
  for (int64_t i = 0; i < c.d; ++i) {
    x[static_cast<size_t>(i)] = p.qkv[row * width + head * c.d + i];
    squares += std::pow(x[static_cast<size_t>(i)], 2);
  }
  if (c.norm && head < c.a + c.g) {
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(c.d) + 1e-5);
    for (int64_t i = 0; i < c.d; ++i) {
      const double gain = head < c.a ? p.q_gain[i] : p.k_gain[i];
      x[static_cast<size_t>(i)] *= rstd * (gain + (c.one_plus ? 1.0 : 0.0));
    }
  }
  if (!c.rotate || head >= c.a + c.g) return x;
  const auto half = static_cast<size_t>(RotatedChannels(p.Config()) / 2);
  for (size_t i = 0; i < half; ++i) {
    const double frequency = std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half));
    const double angle = frequency * p.positions[c.own_positions ? row : row / c.b];
    const std::complex<double> turned =
        std::complex<double>(x[i], x[i + half]) * std::polar(1.0, angle);
    x[i] = turned.real();
    x[i + half] = turned.imag();
  }
  return x;
}

class RotateTest : public testing::TestWithParam<RopeCase> {};

TEST_P(RotateTest, ForwardFollowsTheContract) {
  RopeProblem<double> p(GetParam());
  const RopeProblem<double> before(GetParam());
  const RopeCase& c = p.config;
  p.Forward(2);
  const int64_t heads = c.a + 2 * c.g;
  for (int64_t row = 0; row < c.s * c.b; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const std::vector<double> expected = Definition(before, row, head);
      for (int64_t i = 0; i < c.d; ++i) {
        ASSERT_NEAR(p.qkv[(row * heads + head) * c.d + i], expected[static_cast<size_t>(i)], 1e-14)
            << row << " " << head << " " << i;
        if (c.norm && head < c.a + c.g) {
          ASSERT_EQ(p.input[(row * (c.a + c.g) + head) * c.d + i],
                    before.qkv[(row * heads + head) * c.d + i]);
        }
      }
    }
  }
}

TEST_P(RotateTest, GradientsMatchDifferences) {
  RopeProblem<double> p(GetParam());
  Array<double> x = p.qkv;
  const Array<double> weight = p.dqkv;
  const auto loss = [&] {
    p.qkv = x;
    p.Forward(1);
    return WeightedSum(weight, p.qkv);
  };
  loss();
  p.Grad(2);
  const Array<double> dqkv = p.dqkv;
  ExpectGradient(x, loss, dqkv, "qkv");
  if (!p.config.norm) return;
  ExpectGradient(p.q_gain, loss, p.dq_gain, "q gain");
  ExpectGradient(p.k_gain, loss, p.dk_gain, "k gain");
  const Array<double> dq_gain = p.dq_gain, dk_gain = p.dk_gain;
  loss();
  p.dqkv = weight;
  p.Grad(1, GradMode::kAdd);
  for (int64_t i = 0; i < p.config.d; ++i) {
    EXPECT_EQ(p.dq_gain[i], 2 * dq_gain[i]);
    EXPECT_EQ(p.dk_gain[i], 2 * dk_gain[i]);
  }
}

TEST_P(RotateTest, Fp32FollowsFp64AndTheThreadsDoNotMatter) {
  RopeCase c = GetParam();
  c.s = 80;  // more rows than one block of the gains' sums
  RopeProblem<double> q(c);
  RopeProblem<float> p(c), three(c);
  for (RopeProblem<float>* problem : {&p, &three}) {
    const int threads = problem == &p ? 1 : 3;
    problem->Forward(threads);
    problem->Grad(threads);
  }
  q.Forward(2);
  q.Grad(2);
  EXPECT_TRUE(p.qkv == three.qkv && p.dqkv == three.dqkv);
  ExpectNear(p.qkv, q.qkv, 1e-6, "qkv");
  ExpectNear(p.dqkv, q.dqkv, 1e-6, "dqkv");
  if (!c.norm) return;
  EXPECT_TRUE(p.rstd == three.rstd && p.dq_gain == three.dq_gain && p.dk_gain == three.dk_gain);
  ExpectNear(p.dq_gain, q.dq_gain, 2e-6, "dq_gain");
  ExpectNear(p.dk_gain, q.dk_gain, 2e-6, "dk_gain");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RotateTest,
    testing::Values(
        RopeCase{}, RopeCase{.a = 1, .g = 1, .d = 2}, RopeCase{.a = 3, .g = 1, .d = 12},
        RopeCase{.d = 20, .percent = 0.5}, RopeCase{.d = 10, .percent = 0.25},
        RopeCase{.norm = true}, RopeCase{.a = 2, .g = 2, .d = 34, .norm = true, .one_plus = true},
        RopeCase{.d = 80, .percent = 0.4, .norm = true},
        RopeCase{.d = 7, .rotate = false, .norm = true}, RopeCase{.own_positions = true},
        RopeCase{.b = 3, .d = 20, .percent = 0.5, .norm = true, .own_positions = true}));

// Heads stored larger, with zeros behind their channels, are the same heads; the rest stays zero.
class PaddedRotateTest : public testing::TestWithParam<RopeCase> {};

TEST_P(PaddedRotateTest, IsTheRotationOfTheLogicalHeads) {
  RopeProblem<double> plain(GetParam());
  const RopeCase& c = plain.config;
  const int64_t stored = c.d + 5;
  const auto spread = [&](const Array<double>& x) {
    Array<double> out({x.size() / c.d, stored}, 0.0);
    base::CopyToRuns({.length = c.d, .stride = stored}, x.size(), 8, x.data(), out.data());
    return out;
  };
  RopeCase wide = c;
  wide.d = stored;
  wide.logical_d = c.d;
  RopeProblem<double> padded(wide);
  padded.table = plain.table;
  const auto set = [&](const Array<double>& from, Array<double>* to) {
    const Array<double> all = spread(from);
    ASSERT_EQ(all.size(), to->size());
    std::memcpy(to->data(), all.data(), static_cast<size_t>(all.size()) * sizeof(double));
  };
  set(plain.qkv, &padded.qkv);
  set(plain.dqkv, &padded.dqkv);
  set(plain.q_gain, &padded.q_gain);
  set(plain.k_gain, &padded.k_gain);
  for (RopeProblem<double>* problem : {&plain, &padded}) {
    problem->Forward(2);
    problem->Grad(2);
  }
  const auto expect_same = [&](const Array<double>& got, const Array<double>& want,
                               const char* what) {
    const Array<double> all = spread(want);
    ASSERT_EQ(got.size(), all.size()) << what;
    for (int64_t i = 0; i < all.size(); ++i) {
      ASSERT_NEAR(got[i], all[i], 1e-14) << what << " " << i;
      if (i % stored >= c.d) {
        ASSERT_EQ(got[i], 0.0) << what << " " << i;
      }
    }
  };
  expect_same(padded.qkv, plain.qkv, "qkv");
  expect_same(padded.dqkv, plain.dqkv, "dqkv");
  if (!c.norm) return;
  expect_same(padded.input, plain.input, "input");
  expect_same(padded.dq_gain, plain.dq_gain, "dq_gain");
  expect_same(padded.dk_gain, plain.dk_gain, "dk_gain");
}

INSTANTIATE_TEST_SUITE_P(Cases, PaddedRotateTest,
                         testing::Values(RopeCase{}, RopeCase{.d = 20, .percent = 0.5},
                                         RopeCase{.norm = true},
                                         RopeCase{.d = 34, .norm = true, .one_plus = true},
                                         RopeCase{.d = 7, .rotate = false, .norm = true}));

TEST(RotateInverseTest, TheGradientWithoutNormIsTheInverse) {
  RopeProblem<double> p({.d = 16});
  const Array<double> before = p.qkv;
  p.Forward(1);
  p.dqkv = p.qkv;
  p.Grad(1);
  ExpectNear(p.dqkv, before, 1e-15, "there and back");
}

TEST(RotateInverseTest, ProductsOfQAndKDependOnTheDistanceAlone) {
  // Equal q and equal k at every position: after rotation q_m k_n is a function of m - n.
  constexpr int64_t kS = 9, kD = 8;
  RopeProblem<double> p({.s = kS, .b = 1, .a = 1, .g = 1, .d = kD});
  p.positions = Ints({kS}, [](int64_t i) { return 11 + i; });
  for (int64_t i = 0; i < p.qkv.size(); ++i) p.qkv[i] = p.qkv[i % (3 * kD)];
  p.Forward(1);
  const auto product = [&](int64_t m, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < kD; ++i) sum += p.qkv[m * 3 * kD + i] * p.qkv[n * 3 * kD + kD + i];
    return sum;
  };
  for (int64_t m = 2; m < kS; ++m) {
    EXPECT_NEAR(product(m, m - 2), product(2, 0), 1e-14);
    EXPECT_NEAR(product(m, m), product(0, 0), 1e-14);
  }
  EXPECT_GT(std::abs(product(2, 0) - product(0, 0)), 1e-3);
}

TEST(RopeTableTest, ChannelsAreEvenAndWithinTheirShare) {
  EXPECT_EQ(RotatedChannels({.head_dim = 128}), 128);
  EXPECT_EQ(RotatedChannels({.head_dim = 80, .percent = 0.25}), 20);
  EXPECT_EQ(RotatedChannels({.head_dim = 100, .percent = 0.5}), 50);
  EXPECT_EQ(RotatedChannels({.head_dim = 12, .percent = 0.25}), 2);
}

TEST(RopeTableTest, HoldsCosinesThenSines) {
  const RopeConfig config{.head_dim = 8, .base = 10000, .scaling = {RopeScalingKind::kLinear, 4}};
  Array<double> table({300, 8});
  Array<float> narrow({300, 8});
  FillRopeTable(config, table.tensor());
  FillRopeTable(config, narrow.tensor());
  const double frequency[] = {0.25, 0.025, 0.0025, 0.00025};
  for (int64_t p = 0; p < 300; ++p) {
    for (int64_t i = 0; i < 4; ++i) {
      ASSERT_NEAR(table[p * 8 + i], std::cos(static_cast<double>(p) * frequency[i]), 1e-13);
      ASSERT_NEAR(table[p * 8 + 4 + i], std::sin(static_cast<double>(p) * frequency[i]), 1e-13);
      ASSERT_EQ(narrow[p * 8 + i], static_cast<float>(table[p * 8 + i]));
    }
  }
}

TEST(RopeTableTest, Llama3ScalingByWaveLength) {
  // Llama 3.1: base 500,000, heads of 128, stretched eight times from 8192 positions. The reference
  // code's formula, by wave length.
  const RopeConfig config{
      .head_dim = 128, .base = 500000, .scaling = {RopeScalingKind::kLlama3, 8, 1, 4, 8192}};
  int kept = 0, divided = 0, mixed = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const double plain = std::pow(500000.0, -static_cast<double>(i) / 64);
    const double wave = 2 * M_PI / plain;
    double expected = plain;
    if (wave > 8192.0 / 1) {
      expected = plain / 8;
      ++divided;
    } else if (wave >= 8192.0 / 4) {
      const double smooth = (8192 / wave - 1) / (4 - 1);
      expected = (1 - smooth) * plain / 8 + smooth * plain;
      ++mixed;
    } else {
      ++kept;
    }
    EXPECT_NEAR(RopeFrequency(config, i), expected, 1e-15 * plain) << i;
  }
  EXPECT_TRUE(kept > 20 && divided > 20 && mixed > 3) << kept << " " << divided << " " << mixed;
}

}  // namespace
}  // namespace mt::kernels::cpu
