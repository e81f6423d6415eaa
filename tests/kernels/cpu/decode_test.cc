// Decoding: products of few rows against plain sums, attention over a cache against softmax written
// out, both by bits for other rows beside them and other numbers of threads.
#include <algorithm>
#include <cmath>
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

TEST(FewRowsTest, HalvesGoTheWayOfForward) {
  Uniform random(3);
  Array<Bf16> x = random.Make<Bf16>({2, 24}), w = random.Make<Bf16>({5, 24});
  Array<Bf16> few({2, 5}), whole({2, 5});
  LinearForwardArgs args{.x = x.tensor(), .w = w.tensor(), .y = few.tensor()};
  std::vector<char> space(static_cast<size_t>(Cpu(1).linear().Plan(args)));
  args.workspace = {space.data(), static_cast<int64_t>(space.size())};
  Cpu(1).linear().ForwardFewRows(AnyStream(), args);
  args.y = whole.tensor();
  Cpu(1).linear().Forward(AnyStream(), args);
  for (int64_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i].bits, whole[i].bits);
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
        k_cache({kSequences, c.g, kRoom, c.d}, static_cast<T>(kNan)),
        v_cache(k_cache),
        slopes({c.a}),
        o({2 * s, c.a * c.d}, static_cast<T>(kNan)) {
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
    return double{qkv[row * qkv.shape()[1] + (part + head) * c.d + channel]};
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
  Array<T> qkv, k_cache, v_cache, slopes, o;
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
  ExpectNear(p.o, p.Reference(), tolerance, "o");
  const Array<T> one_by_one = p.o;
  DecodeProblem<T> q(c);
  std::vector<int32_t> rows(2 * DecodeProblem<T>::s);
  std::iota(rows.rbegin(), rows.rend(), 0);
  q.Decode(rows, 3);
  EXPECT_TRUE(q.o == one_by_one);
}

TEST(DecodeTest, MatchesSoftmaxWrittenOut) {
  for (const DecodeCase& c : kCases) {
    CheckDecodeCase<double>(c, 1e-13);
    CheckDecodeCase<float>(c, 3e-6);
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
