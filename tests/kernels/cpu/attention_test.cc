// Attention against the full matrix in fp64, its gradients by differences, its dropout by position;
// legend as in kernels/ops/attention.h.
#include "kernels/ops/attention.h"

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

struct Case {
  int64_t s = 9, b = 2, a = 2, g = 2, d = 5;
  double dropout = 0;
  bool causal = true;
  enum Positions { kFromZero, kOffset, kZigZag } positions = kFromZero;
};

constexpr uint64_t kKey = 0xFEDCBA9876543210U;
constexpr int32_t kFirstHead = 6;

int64_t PositionOf(const Case& c, int64_t s) {
  if (c.positions == Case::kFromZero) return s;
  if (c.positions == Case::kOffset) return s + 3;
  return s < c.s / 2 ? s : 5 * c.s + s;  // two chunks of a longer sequence
}

// One call on a packed projection [s, b, (a + 2 g) d], as the engine lays it out.
template <class T>
struct Problem {
  explicit Problem(const Case& c)
      : config(c),
        qkv({c.s, c.b, (c.a + 2 * c.g) * c.d}),
        dqkv({c.s, c.b, (c.a + 2 * c.g) * c.d}, static_cast<T>(kNan)),
        o({c.s, c.b, c.a * c.d}, static_cast<T>(kNan)),
        dout(o),
        lse({c.b, c.a, c.s}, static_cast<T>(kNan)),
        positions(Ints({c.s}, [&](int64_t s) { return PositionOf(c, s); })),
        samples({c.b}) {
    Uniform random(21);
    qkv = random.Make<T>(qkv.shape(), 1.5);
    dout = random.Make<T>(o.shape());
    for (int64_t i = 0; i < c.b; ++i) samples[i] = 77 + (int64_t{3} << 34) * i;
  }

  HeadView View(Array<T>& x, int64_t first_channel, int64_t channels) {
    return {.data = x.data() + first_channel,
            .s_stride = config.b * channels,
            .b_stride = channels,
            .head_stride = config.d};
  }
  HeadView Packed(Array<T>& x, int which) {
    const int64_t first[] = {0, config.a, config.a + config.g};
    return View(x, first[which] * config.d, (config.a + 2 * config.g) * config.d);
  }
  AttentionShape MakeShape() {
    return {.dtype = DTypeOf<T>(),
            .s = config.s,
            .b = config.b,
            .a = config.a,
            .g = config.g,
            .d = config.d,
            .scale = 1 / std::sqrt(static_cast<double>(config.d)),
            .causal = config.causal};
  }
  AttentionDropout MakeDropout() {
    if (config.dropout == 0) return {};
    return {.rate = MakeDropoutRate(config.dropout),
            .key = kKey,
            .samples = samples.tensor(),
            .positions = positions.tensor(),
            .first_head = kFirstHead};
  }

  void Forward(int threads) {
    AttentionForwardArgs a{.shape = MakeShape(),
                           .q = Packed(qkv, 0),
                           .k = Packed(qkv, 1),
                           .v = Packed(qkv, 2),
                           .dropout = MakeDropout(),
                           .o = View(o, 0, config.a * config.d),
                           .lse = lse.tensor()};
    const AttentionOps& attention = Cpu(threads).attention();
    Scratch256 scratch(attention.WorkspaceBytes(a));
    a.workspace = scratch.workspace();
    attention.Forward(AnyStream(), a);
  }
  void Grad(int threads) {
    AttentionGradArgs a{.shape = MakeShape(),
                        .q = Packed(qkv, 0),
                        .k = Packed(qkv, 1),
                        .v = Packed(qkv, 2),
                        .dropout = MakeDropout(),
                        .o = View(o, 0, config.a * config.d),
                        .lse = lse.tensor(),
                        .do_ = View(dout, 0, config.a * config.d),
                        .dq = Packed(dqkv, 0),
                        .dk = Packed(dqkv, 1),
                        .dv = Packed(dqkv, 2)};
    const AttentionOps& attention = Cpu(threads).attention();
    Scratch256 scratch(attention.WorkspaceBytes(a));
    a.workspace = scratch.workspace();
    attention.Grad(AnyStream(), a);
  }

  Case config;
  Array<T> qkv, dqkv, o, dout, lse;
  Array<int32_t> positions;
  Array<int64_t> samples;
};

double DropoutOf(const Problem<double>& p, int64_t b, int64_t head, int64_t query, int64_t key) {
  const DropoutRate rate = MakeDropoutRate(p.config.dropout);
  if (!rate.active()) return 1;
  const int32_t position = p.positions[key];
  const Philox4 bits =
      Philox(kKey, AttentionDropoutCounter(position, p.positions[query], p.samples[b],
                                           kFirstHead + static_cast<int32_t>(head)));
  return rate.Keep(Bits16(bits, position % 8)) ? rate.Scale() : 0.0;
}

// softmax(q k^T scale) with the whole row of the matrix at hand.
void Reference(const Problem<double>& p, Array<double>* o, Array<double>* lse) {
  const Case& c = p.config;
  const int64_t width = (c.a + 2 * c.g) * c.d;
  const auto at = [&](int64_t s, int64_t b, int64_t head, int64_t i) {
    return p.qkv[(s * c.b + b) * width + head * c.d + i];
  };
  for (int64_t b = 0; b < c.b; ++b) {
    for (int64_t head = 0; head < c.a; ++head) {
      const int64_t k_head = c.a + head / (c.a / c.g), v_head = k_head + c.g;
      for (int64_t query = 0; query < c.s; ++query) {
        const int64_t keys = c.causal ? query + 1 : c.s;
        std::vector<double> e(static_cast<size_t>(keys));
        double sum = 0;
        for (int64_t key = 0; key < keys; ++key) {
          double dot = 0;
          for (int64_t i = 0; i < c.d; ++i) dot += at(query, b, head, i) * at(key, b, k_head, i);
          sum += e[static_cast<size_t>(key)] = std::exp(dot / std::sqrt(static_cast<double>(c.d)));
        }
        (*lse)[(b * c.a + head) * c.s + query] = std::log(sum);
        for (int64_t i = 0; i < c.d; ++i) {
          double value = 0;
          for (int64_t key = 0; key < keys; ++key) {
            value += e[static_cast<size_t>(key)] / sum * DropoutOf(p, b, head, query, key) *
                     at(key, b, v_head, i);
          }
          (*o)[((query * c.b + b) * c.a + head) * c.d + i] = value;
        }
      }
    }
  }
}

class AttentionTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionTest, ForwardMatchesTheFullMatrix) {
  Problem<double> p(GetParam());
  Array<double> o = p.o, lse = p.lse;
  Reference(p, &o, &lse);
  p.Forward(2);
  ExpectNear(p.o, o, 1e-13, "o");
  ExpectNear(p.lse, lse, 1e-13, "lse");
}

TEST_P(AttentionTest, Fp32FollowsFp64) {
  Problem<float> p(GetParam());
  Problem<double> q(GetParam());
  p.Forward(2);
  q.Forward(2);
  ExpectNear(p.o, q.o, 3e-6, "o");
  ExpectNear(p.lse, q.lse, 1e-6, "lse");
  p.Grad(2);
  q.Grad(2);
  ExpectNear(p.dqkv, q.dqkv, 3e-6, "dqkv");
}

// Two evaluations per element of qkv: small cases only.
class AttentionGradTest : public AttentionTest {};

TEST_P(AttentionGradTest, MatchesDifferences) {
  Problem<double> p(GetParam());
  p.Forward(1);
  p.Grad(2);
  const Array<double> gradient = p.dqkv;
  ExpectGradient(
      p.qkv,
      [&] {
        p.Forward(1);
        return WeightedSum(p.dout, p.o);
      },
      gradient, "qkv");
}

TEST_P(AttentionTest, SameBitsTwiceAndWithAnyNumberOfThreads) {
  Problem<float> p(GetParam());
  p.Forward(1);
  p.Grad(1);
  const Array<float> o = p.o, lse = p.lse, dqkv = p.dqkv;
  for (const int threads : {1, 2, 3}) {
    p.dqkv = Array<float>(p.dqkv.shape(), 5.0F);
    p.Forward(threads);
    p.Grad(threads);
    EXPECT_TRUE(p.o == o && p.lse == lse && p.dqkv == dqkv) << threads;
  }
}

const Case kSmall[] = {{},
                       {.s = 1, .b = 1, .a = 1, .g = 1, .d = 5},
                       {.a = 6, .g = 2},
                       {.a = 3, .g = 1, .d = 8},
                       {.causal = false},
                       {.a = 4, .g = 2, .dropout = 0.2},
                       {.s = 21, .dropout = 0.1, .positions = Case::kOffset},
                       {.s = 20, .dropout = 0.3, .positions = Case::kZigZag},
                       // More than one tile of 128, the last one ragged.
                       {.s = 141, .b = 1, .a = 1, .g = 1, .d = 3},
                       {.s = 141, .b = 1, .a = 2, .g = 1, .d = 2, .dropout = 0.25}};
const Case kLarge[] = {
    {.s = 300, .b = 2, .a = 4, .g = 2, .d = 16, .dropout = 0.1},
    {.s = 260, .b = 1, .a = 2, .g = 2, .d = 64, .causal = false},
    {.s = 300, .b = 1, .a = 2, .g = 1, .d = 32, .dropout = 0.1, .positions = Case::kZigZag}};
INSTANTIATE_TEST_SUITE_P(Small, AttentionTest, testing::ValuesIn(kSmall));
INSTANTIATE_TEST_SUITE_P(Small, AttentionGradTest, testing::ValuesIn(kSmall));
INSTANTIATE_TEST_SUITE_P(Large, AttentionTest, testing::ValuesIn(kLarge));

TEST(AttentionLayoutTest, HeadsAndSamplesDoNotDependOnTheirCompany) {
  // Query head 1 of sample 1 alone gives the bits that it gives among four.
  Problem<float> all({.s = 40, .b = 2, .a = 2, .g = 2, .d = 8, .dropout = 0.2});
  all.Forward(2);
  Problem<float> one({.s = 40, .b = 1, .a = 1, .g = 1, .d = 8, .dropout = 0.2});
  one.samples[0] = all.samples[1];
  for (int64_t s = 0; s < 40; ++s) {
    for (int64_t part = 0; part < 3; ++part) {
      for (int64_t i = 0; i < 8; ++i) {
        one.qkv[s * 24 + part * 8 + i] = all.qkv[(s * 2 + 1) * 48 + part * 16 + 8 + i];
      }
    }
  }
  AttentionForwardArgs args{.shape = one.MakeShape(),
                            .q = one.Packed(one.qkv, 0),
                            .k = one.Packed(one.qkv, 1),
                            .v = one.Packed(one.qkv, 2),
                            .dropout = one.MakeDropout(),
                            .o = one.View(one.o, 0, 8),
                            .lse = one.lse.tensor()};
  args.dropout.first_head = kFirstHead + 1;
  Scratch256 scratch(Cpu(1).attention().WorkspaceBytes(args));
  args.workspace = scratch.workspace();
  Cpu(1).attention().Forward(AnyStream(), args);
  for (int64_t s = 0; s < 40; ++s) {
    for (int64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(one.o[s * 8 + i], all.o[(s * 2 + 1) * 16 + 8 + i]) << s << " " << i;
    }
  }
}

TEST(AttentionRangeTest, LargeLogitsNeitherOverflowNorVanish) {
  Problem<float> p({.s = 150, .b = 1, .a = 1, .g = 1, .d = 4});
  Problem<double> q({.s = 150, .b = 1, .a = 1, .g = 1, .d = 4});
  for (int64_t i = 0; i < p.qkv.size(); ++i) {
    p.qkv[i] *= 40;  // logits to some thousands
    q.qkv[i] = double{p.qkv[i]};
  }
  p.Forward(2);
  q.Forward(2);
  for (int64_t i = 0; i < p.o.size(); ++i) ASSERT_TRUE(std::isfinite(p.o[i]));
  ExpectNear(p.lse, q.lse, 1e-6, "lse");
  // A logit of thousands is good to 1e-4 in fp32, and a probability with it.
  ExpectNear(p.o, q.o, 2e-3, "o");
}

}  // namespace
}  // namespace mt::kernels::cpu
