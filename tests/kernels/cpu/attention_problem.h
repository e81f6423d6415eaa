// Operands of an attention call and its expected result in fp64, computed with the full matrix of
// logits. Legend as in kernels/ops/attention.h.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/cpu/dispatch.h"
#include "kernels/ops/attention.h"
#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {

struct AttentionCase {
  int64_t s = 9, b = 2, a = 2, g = 2, d = 5;
  double dropout = 0;
  bool causal = true;
  enum Positions { kFromZero, kOffset, kZigZag } positions = kFromZero;
  int64_t window = 0, q0 = 0, k0 = 0;
  bool alibi = false;
  int64_t key_shift = 0;  // key positions are the queries' plus this; 0: no table of their own
};

inline constexpr uint64_t kKey = 0xFEDCBA9876543210U;
inline constexpr int32_t kFirstHead = 6;

inline int64_t PositionOf(const AttentionCase& c, int64_t s) {
  if (c.positions == AttentionCase::kFromZero) return s;
  if (c.positions == AttentionCase::kOffset) return s + 3;
  return s < c.s / 2 ? s : 5 * c.s + s;  // two chunks of a longer sequence
}

// One call on a packed projection [s, b, (a + 2 g) d], as the engine lays it out.
template <class T>
struct AttentionProblem {
  using Sums = Compute<T>;

  explicit AttentionProblem(const AttentionCase& c)
      : config(c),
        qkv({c.s, c.b, (c.a + 2 * c.g) * c.d}),
        dqkv({c.s, c.b, (c.a + 2 * c.g) * c.d}, ValueOf<T>(kNan)),
        o({c.s, c.b, c.a * c.d}, ValueOf<T>(kNan)),
        dout(o),
        lse({c.b, c.a, c.s}, static_cast<Sums>(kNan)),
        positions(Ints({c.s}, [&](int64_t s) { return PositionOf(c, s); })),
        key_positions(Ints({c.s}, [&](int64_t s) { return PositionOf(c, s) + c.key_shift; })),
        samples({c.b}),
        slopes({c.a}) {
    Uniform random(21);
    qkv = random.Make<T>(qkv.shape(), 1.5);
    dout = random.Make<T>(o.shape());
    FillAlibiSlopes(c.a + 3, 2, slopes.tensor());
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
            .causal = config.causal,
            .window = config.window,
            .q0 = config.q0,
            .k0 = config.k0,
            .slopes = config.alibi ? slopes.tensor() : Tensor{}};
  }
  AttentionDropout MakeDropout() {
    if (config.dropout == 0) return {};
    return {.rate = MakeDropoutRate(config.dropout),
            .key = kKey,
            .samples = samples.tensor(),
            .positions = positions.tensor(),
            .key_positions = config.key_shift == 0 ? Tensor{} : key_positions.tensor(),
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
    AttentionOps& attention = Cpu(threads).attention();
    Scratch256 scratch(attention.Plan(a));
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
    AttentionOps& attention = Cpu(threads).attention();
    Scratch256 scratch(attention.Plan(a));
    a.workspace = scratch.workspace();
    attention.Grad(AnyStream(), a);
  }

  AttentionCase config;
  Array<T> qkv, dqkv, o, dout;
  Array<Sums> lse;
  Array<int32_t> positions, key_positions;
  Array<int64_t> samples;
  Array<Sums> slopes;
};

inline double DropoutOf(const AttentionProblem<double>& p, int64_t b, int64_t head, int64_t query,
                        int64_t key) {
  const DropoutRate rate = MakeDropoutRate(p.config.dropout);
  if (!rate.active()) return 1;
  const int32_t position = p.key_positions[key];
  const Philox4 bits =
      Philox(kKey, AttentionDropoutCounter(position, p.positions[query], p.samples[b],
                                           kFirstHead + static_cast<int32_t>(head)));
  return rate.Keep(Bits16(bits, position % 8)) ? rate.Scale() : 0.0;
}

// softmax(q k^T scale + bias) over the visible keys, with the whole row of the matrix at hand.
inline void AttentionReference(const AttentionProblem<double>& p, Array<double>* o,
                               Array<double>* lse) {
  const AttentionCase& c = p.config;
  const int64_t width = (c.a + 2 * c.g) * c.d;
  const auto at = [&](int64_t s, int64_t b, int64_t head, int64_t i) {
    return p.qkv[(s * c.b + b) * width + head * c.d + i];
  };
  for (int64_t b = 0; b < c.b; ++b) {
    for (int64_t head = 0; head < c.a; ++head) {
      const int64_t k_head = c.a + head / (c.a / c.g), v_head = k_head + c.g;
      for (int64_t query = 0; query < c.s; ++query) {
        std::vector<double> e(static_cast<size_t>(c.s));
        double sum = 0;
        for (int64_t key = 0; key < c.s; ++key) {
          const int64_t behind = c.q0 + query - (c.k0 + key);
          if ((c.causal && behind < 0) || (c.window > 0 && behind >= c.window)) continue;
          double dot = 0;
          for (int64_t i = 0; i < c.d; ++i) dot += at(query, b, head, i) * at(key, b, k_head, i);
          dot /= std::sqrt(static_cast<double>(c.d));
          if (c.alibi) dot -= p.slopes[head] * static_cast<double>(behind);
          sum += e[static_cast<size_t>(key)] = std::exp(dot);
        }
        (*lse)[(b * c.a + head) * c.s + query] = std::log(sum);
        for (int64_t i = 0; i < c.d; ++i) {
          double value = 0;
          for (int64_t key = 0; key < c.s; ++key) {
            const double probability = sum == 0 ? 0 : e[static_cast<size_t>(key)] / sum;
            value += probability * DropoutOf(p, b, head, query, key) * at(key, b, v_head, i);
          }
          (*o)[((query * c.b + b) * c.a + head) * c.d + i] = value;
        }
      }
    }
  }
}

}  // namespace mt::kernels::cpu
