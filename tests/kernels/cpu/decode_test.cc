// Decoding: products of few rows against plain sums, attention over a cache against softmax written
// out, both by bits for other rows beside them and other numbers of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

struct Product {
  int64_t n, k;
};

template <class T>
Array<T> FewRowsOf(Array<T>* x, Array<T>* w, Array<T>* bias, int64_t rows, int threads) {
  Array<T> y({rows, w->shape()[0]}, static_cast<T>(kNan));
  LinearForwardArgs args{.x = x->tensor().Rows(0, rows), .w = w->tensor(), .y = y.tensor()};
  if (bias != nullptr) args.bias = bias->tensor();
  Cpu(threads).linear().ForwardFewRows(AnyStream(), args);
  return y;
}

template <class T>
void CheckProduct(const Product& p, double tolerance) {
  Uniform random(11);
  Array<T> x = random.Make<T>({kMaxFewRows, p.k}), w = random.Make<T>({p.n, p.k});
  Array<T> bias = random.Make<T>({p.n});
  Array<double> expected({kMaxFewRows, p.n});
  for (int64_t i = 0; i < expected.size(); ++i) {
    expected[i] = double{bias[i % p.n]};
    for (int64_t l = 0; l < p.k; ++l)
      expected[i] += double{x[i / p.n * p.k + l]} * double{w[i % p.n * p.k + l]};
  }
  const Array<T> all = FewRowsOf(&x, &w, &bias, kMaxFewRows, 1);
  ExpectNear(all, expected, tolerance, "y");
  for (int64_t rows = 1; rows <= kMaxFewRows; ++rows) {
    const Array<T> some = FewRowsOf(&x, &w, &bias, rows, 3);
    for (int64_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i], all[i]) << rows << " rows";
  }
  const Array<T> plain = FewRowsOf<T>(&x, &w, nullptr, 1, 2);
  for (int64_t i = 0; i < plain.size(); ++i)
    EXPECT_NEAR(double{plain[i]} + double{bias[i]}, double{all[i]}, 1e-5);
}

TEST(FewRowsTest, MatchesPlainSumsWhateverIsComputedBesideARow) {
  for (const Product& p : {Product{5, 1}, {3, 16}, {7, 37}, {300, 768}, {2, 1003}}) {
    CheckProduct<double>(p, 1e-14);
    CheckProduct<float>(p, 3e-6);
  }
}

// What the elements stand for.
template <class To, class T>
Array<To> StandFor(const Array<T>& from) {
  Array<To> out(from.shape());
  for (int64_t i = 0; i < out.size(); ++i) out[i] = static_cast<To>(Widen(from[i]));
  return out;
}

template <class T>
bool SameBits(const Array<T>& a, const Array<T>& b) {
  return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size()) * sizeof(T)) == 0;
}

// The sums are f32's, of the values that the halves stand for, and each is rounded once.
template <class S>
void CheckHalves(int64_t rows, int64_t n, int64_t k, bool has_bias) {
  Uniform random(3);
  Array<S> x = random.Make<S>({rows, k}), w = random.Make<S>({n, k}), bias = random.Make<S>({n});
  Array<S> y({rows, n}), want({rows, n});
  LinearForwardArgs args{.x = x.tensor(), .w = w.tensor(), .y = y.tensor()};
  if (has_bias) args.bias = bias.tensor();
  Cpu(2).linear().ForwardFewRows(AnyStream(), args);
  Array<float> wide_x = StandFor<float>(x), wide_w = StandFor<float>(w);
  Array<float> wide_bias = StandFor<float>(bias), wide_y({rows, n});
  args = {.x = wide_x.tensor(), .w = wide_w.tensor(), .y = wide_y.tensor()};
  if (has_bias) args.bias = wide_bias.tensor();
  Cpu(1).linear().ForwardFewRows(AnyStream(), args);
  for (int64_t i = 0; i < want.size(); ++i) Narrow(wide_y[i], &want[i]);
  EXPECT_TRUE(SameBits(y, want)) << rows << " x " << n << " x " << k;
}

TEST(FewRowsTest, HalvesAreF32sSumsRounded) {
  for (const bool has_bias : {false, true}) {
    CheckHalves<Bf16>(2, 5, 24, has_bias);
    CheckHalves<F16>(8, 100, 37, has_bias);
    CheckHalves<Bf16>(1, 33, 700, has_bias);
  }
}

struct DecodeCase {
  int64_t a, g, d, window;
  bool alibi;
};

// Tokens of two sequences of s positions, all of which are decoded.
template <class T>
struct DecodeProblem {
  static constexpr int64_t kSequences = 3, kRoom = 21, s = 19;

  explicit DecodeProblem(const DecodeCase& one)
      : c(one),
        qkv(Uniform(5).Make<T>({2 * s, (c.a + 2 * c.g) * c.d}, 2)),
        k_cache({kSequences, c.g, kRoom, c.d}, ValueOf<T>(kNan)),
        v_cache(k_cache),
        slopes({c.a}),
        o({2 * s, c.a * c.d}, ValueOf<T>(kNan)) {
    if (c.alibi) FillAlibiSlopes(c.a, 0, slopes.tensor());
  }

  // Rows `numbers` of all, in one call. Row r is position r / 2 of sequence 2 * (r % 2).
  void Decode(std::vector<int32_t> numbers, int threads) {
    const auto rows = static_cast<int64_t>(numbers.size());
    Array<int32_t> sequences({rows}), positions({rows});
    Array<T> packed({rows, qkv.shape()[1]}), out({rows, c.a * c.d});
    for (int64_t i = 0; i < rows; ++i) {
      const int32_t row = numbers[static_cast<size_t>(i)];
      sequences[i] = 2 * (row % 2);
      positions[i] = row / 2;
      std::copy_n(qkv.data() + row * qkv.shape()[1], qkv.shape()[1],
                  packed.data() + i * qkv.shape()[1]);
    }
    AttentionDecodeArgs args{.dtype = DTypeOf<T>(),
                             .a = c.a,
                             .g = c.g,
                             .d = c.d,
                             .scale = 0.3,
                             .window = c.window,
                             .qkv = packed.tensor(),
                             .sequences = sequences.tensor(),
                             .positions = positions.tensor(),
                             .k_cache = k_cache.tensor(),
                             .v_cache = v_cache.tensor(),
                             .o = out.tensor()};
    if (c.alibi) args.slopes = slopes.tensor();
    std::vector<char> space(
        static_cast<size_t>(Cpu(threads).attention().DecodeWorkspaceBytes(args)));
    args.workspace = {space.data(), static_cast<int64_t>(space.size())};
    Cpu(threads).attention().Decode(AnyStream(), args);
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(out.data() + i * c.a * c.d, c.a * c.d,
                  o.data() + numbers[static_cast<size_t>(i)] * c.a * c.d);
    }
  }

  double At(int64_t row, int64_t part, int64_t head, int64_t channel) const {
    return static_cast<double>(Widen(qkv[row * qkv.shape()[1] + (part + head) * c.d + channel]));
  }

  Array<double> Reference() {
    Array<double> want({2 * s, c.a * c.d});
    for (int64_t row = 0; row < 2 * s; ++row)
      for (int64_t head = 0; head < c.a; ++head) ReferenceHead(row, head, &want);
    return want;
  }

  void ReferenceHead(int64_t row, int64_t head, Array<double>* want) {
    const int64_t kv = head / (c.a / c.g);
    double sum = 0;
    std::vector<double> weights;
    for (int64_t key = row % 2; key <= row; key += 2) {
      double logit = double{slopes[head]} * static_cast<double>(key - row) / 2;
      for (int64_t i = 0; i < c.d; ++i) logit += 0.3 * At(row, 0, head, i) * At(key, c.a, kv, i);
      const bool seen = c.window == 0 || (row - key) / 2 < c.window;
      weights.push_back(seen ? std::exp(logit) : 0);
      sum += weights.back();
    }
    for (int64_t key = row % 2; key <= row; key += 2)
      for (int64_t i = 0; i < c.d; ++i)
        (*want)[(row * c.a + head) * c.d + i] +=
            weights[static_cast<size_t>(key / 2)] / sum * At(key, c.a + c.g, kv, i);
  }

  DecodeCase c;
  Array<T> qkv, k_cache, v_cache;
  Array<Compute<T>> slopes;
  Array<T> o;
};

const DecodeCase kCases[] = {{.a = 4, .g = 4, .d = 16, .window = 0, .alibi = false},
                             {.a = 6, .g = 2, .d = 5, .window = 0, .alibi = true},
                             {.a = 4, .g = 1, .d = 64, .window = 1, .alibi = false},
                             {.a = 3, .g = 3, .d = 37, .window = 7, .alibi = true}};

// Each row by itself; then all as one prompt each, in another order; the same bits.
template <class T>
void CheckDecodeCase(const DecodeCase& c, double tolerance) {
  DecodeProblem<T> p(c);
  for (int32_t row = 0; row < 2 * DecodeProblem<T>::s; ++row) p.Decode({row}, 1);
  ExpectNear(StandFor<double>(p.o), p.Reference(), tolerance, "o");
  const Array<T> one_by_one = p.o;
  DecodeProblem<T> q(c);
  std::vector<int32_t> rows(2 * DecodeProblem<T>::s);
  std::iota(rows.rbegin(), rows.rend(), 0);
  q.Decode(rows, 3);
  EXPECT_TRUE(SameBits(q.o, one_by_one));
}

TEST(DecodeTest, MatchesSoftmaxWrittenOut) {
  for (const DecodeCase& c : kCases) {
    CheckDecodeCase<double>(c, 1e-13);
    CheckDecodeCase<float>(c, 3e-6);
    // One rounding of the result.
    CheckDecodeCase<Bf16>(c, 0x1p-8);
    CheckDecodeCase<F16>(c, 0x1p-11);
  }
}

TEST(DecodeTest, ABackendWithoutItRefuses) {
  class Other final : public AttentionOps {
   public:
    int64_t Plan(const AttentionForwardArgs& /*args*/) override { return 0; }
    void Forward(Stream& /*stream*/, const AttentionForwardArgs& /*args*/) const override {}
    int64_t Plan(const AttentionGradArgs& /*args*/) override { return 0; }
    void Grad(Stream& /*stream*/, const AttentionGradArgs& /*args*/) const override {}
  };
  EXPECT_THROW(Other().Decode(AnyStream(), {}), DeviceError);
}

}  // namespace
}  // namespace mt::kernels::cpu
