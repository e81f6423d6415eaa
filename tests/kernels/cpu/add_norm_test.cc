// AddNorm against a direct fp64 evaluation of its contract with scalar dropout bits, its gradients
// against central differences, and its independence of the split over threads. Legend as in
// kernels/ops/add_norm.h.
#include "kernels/ops/add_norm.h"

#include <cstring>

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

struct Case {
  int64_t s = 3, b = 2, h = 7;
  bool residual = true;
  int partials = 1;
  bool bias = true, position = false;
  double dropout = 0;
  NormKind kind = NormKind::kLayerNorm;
  bool norm = true, shift = true, one_plus = false;
  bool own_positions = false;  // each row has its own place in the table
};

// All operands of one call, forward and backward.
template <class T>
struct Problem {
  explicit Problem(const Case& c) : config(c) {
    Uniform random(11);
    const Shape rows{c.s * c.b, c.h};
    residual = random.Make<T>(rows);
    for (int i = 0; i < c.partials; ++i) partials.push_back(random.Make<T>(rows));
    bias = random.Make<T>({c.h});
    table = random.Make<T>({40, c.h});
    gain = random.Make<T>({c.h});
    shift = random.Make<T>({c.h});
    positions = Ints({c.s}, [](int64_t i) { return 5 + i; });
    table_positions =
        c.own_positions ? Ints({c.s * c.b}, [](int64_t i) { return 11 * i % 40; }) : positions;
    for (int64_t i = 0; i < c.b; ++i) samples[i] = 1000003 + (int64_t{5} << 33) * i;
    dy_partials.push_back(random.Make<T>(rows));
    dy_partials.push_back(random.Make<T>(rows));
    dresidual_in = random.Make<T>(rows);
    out = y = dresidual = dbranch = Array<T>(rows, static_cast<T>(kNan));
    mean = rstd = Array<T>({rows[0]}, static_cast<T>(kNan));
    dgain = dshift = dbias = Array<T>({c.h}, static_cast<T>(kNan));
  }

  Dropout MakeDropout() {
    if (config.dropout == 0) return {};
    return {.rate = MakeDropoutRate(config.dropout),
            .key = 0x1234567890ABCDEFU,
            .samples = samples.tensor(),
            .positions = positions.tensor()};
  }

  AddNormArgs Forward() {
    AddNormArgs a{.batch = config.b,
                  .dropout = MakeDropout(),
                  .kind = config.kind,
                  .one_plus = config.one_plus,
                  .residual_out = out.tensor()};
    if (config.residual) a.residual = residual.tensor();
    for (Array<T>& p : partials)
      a.partials.tensor[static_cast<size_t>(a.partials.count++)] = p.tensor();
    if (config.bias) a.bias = bias.tensor();
    if (config.position) {
      a.position_table = table.tensor();
      a.positions = table_positions.tensor();
    }
    if (config.norm) {
      a.gain = gain.tensor();
      if (config.shift) a.shift = shift.tensor();
      a.y = y.tensor();
      if (config.kind == NormKind::kLayerNorm) a.mean = mean.tensor();
      a.rstd = rstd.tensor();
    }
    return a;
  }

  AddNormGradArgs Backward() {
    AddNormGradArgs a{.dresidual_in = dresidual_in.tensor(),
                      .residual_out = out.tensor(),
                      .kind = config.kind,
                      .one_plus = config.one_plus,
                      .dropout = MakeDropout(),
                      .batch = config.b,
                      .dresidual = dresidual.tensor(),
                      .dbranch = config.dropout == 0 ? dresidual.tensor() : dbranch.tensor()};
    if (config.norm) {
      for (Array<T>& p : dy_partials) a.dy.tensor[static_cast<size_t>(a.dy.count++)] = p.tensor();
      a.gain = gain.tensor();
      if (config.kind == NormKind::kLayerNorm) a.mean = mean.tensor();
      a.rstd = rstd.tensor();
      a.dgain = dgain.tensor();
      if (config.shift) a.dshift = dshift.tensor();
    }
    if (config.bias) a.dbias = dbias.tensor();
    return a;
  }

  void RunBackward(int threads, GradMode mode = GradMode::kOverwrite) {
    AddNormGradArgs a = Backward();
    a.mode = mode;
    Scratch256 scratch(Cpu(threads).add_norm().WorkspaceBytes(a));
    a.workspace = scratch.workspace();
    Cpu(threads).add_norm().AddNormGrad(AnyStream(), a);
  }

  int32_t PlaceInTable(int64_t row) const {
    return table_positions[config.own_positions ? row : row / config.b];
  }
  const Array<T>& Branch() const { return config.dropout == 0 ? dresidual : dbranch; }

  Case config;
  Array<T> residual{{1}}, bias{{1}}, table{{1}}, gain{{1}}, shift{{1}}, dresidual_in{{1}};
  std::vector<Array<T>> partials, dy_partials;
  Array<int32_t> positions{{1}}, table_positions{{1}};
  Array<int64_t> samples{{8}};
  Array<T> out{{1}}, y{{1}}, mean{{1}}, rstd{{1}}, dresidual{{1}}, dbranch{{1}}, dgain{{1}},
      dshift{{1}}, dbias{{1}};

 public:
  void TrimSamples() {
    Array<int64_t> trimmed({config.b});
    std::memcpy(trimmed.data(), samples.data(), static_cast<size_t>(config.b) * sizeof(int64_t));
    samples = trimmed;
  }
};

template <class T>
Problem<T> MakeProblem(const Case& c) {
  Problem<T> p(c);
  p.TrimSamples();
  return p;
}

// The contract, element by element, in fp64.
void Reference(const Problem<double>& p, Array<double>* out, Array<double>* y) {
  const Case& c = p.config;
  const DropoutRate rate = MakeDropoutRate(c.dropout);
  for (int64_t row = 0; row < c.s * c.b; ++row) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < c.h; ++i) {
      double branch = 0;
      for (const Array<double>& partial : p.partials) branch += partial[row * c.h + i];
      if (c.bias) branch += p.bias[i];
      const int32_t position = p.positions[row / c.b];
      if (c.position) branch += p.table[p.PlaceInTable(row) * c.h + i];
      const Philox4 bits =
          Philox(0x1234567890ABCDEFU, HiddenDropoutCounter(i, position, p.samples[row % c.b]));
      if (rate.active())
        branch *= rate.Keep(Bits16(bits, static_cast<int>(i % 8))) ? rate.Scale() : 0.0;
      (*out)[row * c.h + i] = branch + (c.residual ? p.residual[row * c.h + i] : 0.0);
      sum += (*out)[row * c.h + i];
    }
    if (!c.norm) continue;
    const double mean = c.kind == NormKind::kLayerNorm ? sum / static_cast<double>(c.h) : 0.0;
    for (int64_t i = 0; i < c.h; ++i) squares += std::pow((*out)[row * c.h + i] - mean, 2);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(c.h) + 1e-5);
    for (int64_t i = 0; i < c.h; ++i) {
      (*y)[row * c.h + i] =
          ((*out)[row * c.h + i] - mean) * rstd * (p.gain[i] + (c.one_plus ? 1.0 : 0.0)) +
          (c.shift ? p.shift[i] : 0.0);
    }
  }
}

class AddNormTest : public testing::TestWithParam<Case> {};

TEST_P(AddNormTest, ForwardFollowsTheContract) {
  Problem<double> p = MakeProblem<double>(GetParam());
  Array<double> out = p.out, y = p.y;
  Reference(p, &out, &y);
  Cpu(2).add_norm().AddNorm(AnyStream(), p.Forward());
  ExpectNear(p.out, out, 1e-14, "residual_out");
  if (p.config.norm) ExpectNear(p.y, y, 1e-13, "y");
}

TEST_P(AddNormTest, Fp32FollowsFp64) {
  Problem<float> p = MakeProblem<float>(GetParam());
  Problem<double> q = MakeProblem<double>(GetParam());
  Cpu(2).add_norm().AddNorm(AnyStream(), p.Forward());
  Cpu(2).add_norm().AddNorm(AnyStream(), q.Forward());
  ExpectNear(p.out, q.out, 1e-6, "residual_out");
  if (p.config.norm) ExpectNear(p.y, q.y, 1e-5, "y");
  p.RunBackward(2);
  q.RunBackward(2);
  ExpectNear(p.dresidual, q.dresidual, 1e-5, "dresidual");
  ExpectNear(p.Branch(), q.Branch(), 1e-5, "dbranch");
  if (p.config.norm) ExpectNear(p.dgain, q.dgain, 1e-5, "dgain");
  if (p.config.norm && p.config.shift) ExpectNear(p.dshift, q.dshift, 1e-5, "dshift");
  if (p.config.bias) ExpectNear(p.dbias, q.dbias, 1e-5, "dbias");
}

TEST_P(AddNormTest, GradientsMatchDifferences) {
  Problem<double> p = MakeProblem<double>(GetParam());
  const Case& c = p.config;
  const auto loss = [&] {
    Cpu(1).add_norm().AddNorm(AnyStream(), p.Forward());
    double total = WeightedSum(p.dresidual_in, p.out);
    if (c.norm) total += WeightedSum(p.dy_partials[0], p.y) + WeightedSum(p.dy_partials[1], p.y);
    return total;
  };
  loss();
  p.RunBackward(2);
  if (c.residual) ExpectGradient(p.residual, loss, p.dresidual, "residual");
  for (Array<double>& partial : p.partials) ExpectGradient(partial, loss, p.Branch(), "partial");
  if (c.bias) ExpectGradient(p.bias, loss, p.dbias, "bias");
  if (c.norm) ExpectGradient(p.gain, loss, p.dgain, "gain");
  if (c.norm && c.shift) ExpectGradient(p.shift, loss, p.dshift, "shift");
  if (c.position) {  // what ScatterGrad makes of dbranch
    Array<double> dtable(p.table.shape());
    for (int64_t i = 0; i < p.Branch().size(); ++i) {
      dtable[p.PlaceInTable(i / c.h) * c.h + i % c.h] += p.Branch()[i];
    }
    ExpectGradient(p.table, loss, dtable, "position table");
  }
}

TEST_P(AddNormTest, AddDoublesWhatOverwriteWrote) {
  Problem<double> p = MakeProblem<double>(GetParam());
  Cpu(1).add_norm().AddNorm(AnyStream(), p.Forward());
  p.RunBackward(3);
  const Array<double> dgain = p.dgain, dshift = p.dshift, dbias = p.dbias;
  p.RunBackward(3, GradMode::kAdd);
  for (int64_t i = 0; i < p.config.h; ++i) {
    if (p.config.norm) {
      EXPECT_EQ(p.dgain[i], 2 * dgain[i]);
    }
    if (p.config.norm && p.config.shift) {
      EXPECT_EQ(p.dshift[i], 2 * dshift[i]);
    }
    if (p.config.bias) {
      EXPECT_EQ(p.dbias[i], 2 * dbias[i]);
    }
  }
}

constexpr NormKind kRms = NormKind::kRmsNorm;
INSTANTIATE_TEST_SUITE_P(
    Cases, AddNormTest,
    testing::Values(Case{}, Case{.dropout = 0.25}, Case{.s = 1, .b = 1, .h = 1, .norm = false},
                    Case{.residual = false, .position = true, .dropout = 0.1},
                    Case{.b = 3, .position = true, .dropout = 0.3, .own_positions = true},
                    Case{.partials = 0, .bias = false}, Case{.partials = 8, .bias = false},
                    Case{.partials = 2, .norm = false}, Case{.dropout = 0.5, .norm = false},
                    Case{.kind = kRms, .shift = false},
                    Case{.dropout = 0.3, .kind = kRms, .shift = false, .one_plus = true},
                    Case{.one_plus = true}, Case{.s = 1, .b = 1, .h = 133, .dropout = 0.1},
                    // More rows than one block of the gain gradients' sums.
                    Case{.s = 33, .b = 1, .h = 5, .dropout = 0.1}));

TEST(AddNormLayoutTest, RowsDoNotDependOnHowTheyAreCut) {
  // Two samples of 6 positions at once, or by sample and by halves of the sequence.
  const Case whole_case{.s = 6, .b = 2, .h = 133, .dropout = 0.2};
  Problem<float> whole = MakeProblem<float>(whole_case);
  Cpu(2).add_norm().AddNorm(AnyStream(), whole.Forward());
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t half = 0; half < 2; ++half) {
      Problem<float> part = MakeProblem<float>({.s = 3, .b = 1, .h = 133, .dropout = 0.2});
      part.bias = whole.bias;
      part.gain = whole.gain;
      part.shift = whole.shift;
      part.samples[0] = whole.samples[b];
      for (int64_t s = 0; s < 3; ++s) {
        const int64_t row = (half * 3 + s) * 2 + b;
        part.positions[s] = whole.positions[half * 3 + s];
        for (int64_t c = 0; c < 133; ++c) {
          part.residual[s * 133 + c] = whole.residual[row * 133 + c];
          part.partials[0][s * 133 + c] = whole.partials[0][row * 133 + c];
        }
      }
      Cpu(1).add_norm().AddNorm(AnyStream(), part.Forward());
      for (int64_t i = 0; i < 3 * 133; ++i) {
        const int64_t row = (half * 3 + i / 133) * 2 + b;
        ASSERT_EQ(part.out[i], whole.out[row * 133 + i % 133]);
        ASSERT_EQ(part.y[i], whole.y[row * 133 + i % 133]);
      }
    }
  }
}

TEST(AddNormLayoutTest, GradientsHaveTheSameBitsWithAnyNumberOfThreads) {
  const Case c{.s = 100, .b = 3, .h = 37, .dropout = 0.1};
  Problem<float> one = MakeProblem<float>(c), three = MakeProblem<float>(c);
  Cpu(1).add_norm().AddNorm(AnyStream(), one.Forward());
  Cpu(3).add_norm().AddNorm(AnyStream(), three.Forward());
  one.RunBackward(1);
  three.RunBackward(3);
  EXPECT_TRUE(one.y == three.y && one.dresidual == three.dresidual && one.dbranch == three.dbranch);
  EXPECT_TRUE(one.dgain == three.dgain && one.dshift == three.dshift && one.dbias == three.dbias);
}

TEST(AddNormLayoutTest, InPlaceGivesTheSameBits) {
  Problem<float> apart = MakeProblem<float>({.dropout = 0.1});
  Problem<float> in_place = MakeProblem<float>({.dropout = 0.1});
  Cpu(1).add_norm().AddNorm(AnyStream(), apart.Forward());
  AddNormArgs args = in_place.Forward();
  args.residual_out = args.residual;
  Cpu(1).add_norm().AddNorm(AnyStream(), args);
  EXPECT_TRUE(in_place.residual == apart.out);
  apart.RunBackward(1);
  in_place.out = apart.out;
  AddNormGradArgs grad = in_place.Backward();
  grad.dresidual = grad.dresidual_in;
  Scratch256 scratch(Cpu(1).add_norm().WorkspaceBytes(grad));
  grad.workspace = scratch.workspace();
  Cpu(1).add_norm().AddNormGrad(AnyStream(), grad);
  EXPECT_TRUE(in_place.dresidual_in == apart.dresidual && in_place.dbranch == apart.dbranch);
}

TEST(DropoutTest, KeepsTheRightShareAndScalesIt) {
  const Case c{
      .s = 256, .b = 2, .h = 512, .residual = false, .bias = false, .dropout = 0.1, .norm = false};
  Problem<float> p = MakeProblem<float>(c);
  for (int64_t i = 0; i < p.partials[0].size(); ++i) p.partials[0][i] = 1;
  Cpu(2).add_norm().AddNorm(AnyStream(), p.Forward());
  const double scale = MakeDropoutRate(0.1).Scale();
  EXPECT_NEAR(scale, 1 / 0.9, 1e-5);
  int64_t kept = 0, pairs_kept = 0;
  const int64_t n = p.out.size();
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_TRUE(p.out[i] == 0 || p.out[i] == static_cast<float>(scale));
    kept += p.out[i] != 0 ? 1 : 0;
    pairs_kept += i > 0 && p.out[i] != 0 && p.out[i - 1] != 0 ? 1 : 0;
  }
  // Five standard deviations of a fair coin of that bias; neighbours independent.
  const double count = static_cast<double>(n);
  EXPECT_NEAR(static_cast<double>(kept) / count, 0.9, 5 * std::sqrt(0.09 / count));
  EXPECT_NEAR(static_cast<double>(pairs_kept) / count, 0.81, 6 * std::sqrt(0.81 * 0.19 / count));
}

}  // namespace
}  // namespace mt::kernels::cpu
