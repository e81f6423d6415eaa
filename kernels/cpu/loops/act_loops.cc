// Both gelu and silu are x / (1 + e) with e = e^(-z): silu has z = x, and with u = sqrt(2/pi) (x +
// 0.044715 x^3) gelu's 0.5 (1 + tanh u) equals 1 / (1 + e^(-2u)) exactly. So each costs one exp and
// one division, without the cancellation of 1 + tanh u at large negative x. The slope of either is
// s + x s (1 - s) z' with s = 1 / (1 + e) and 1 - s = e s.
//
// GELU in its exact form takes both from the normal distribution's tail t = Phi(-|x|), which keeps
// its relative precision where x is negative: its value is max(x, 0) - |x| t, and its slope is
// Phi(x) + x times the density. double calls libm's erfc.
#include "kernels/cpu/loops/act_loops.h"

#include "kernels/core/normal_tail.h"
#include "kernels/cpu/loops/fast_math.h"
#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {
namespace {

constexpr double kMinusTwoRootTwoOverPi = -1.5957691216057307117597842397375;
constexpr double kCubic = 0.044715;

struct Gelu {
  // Returns e^(-2u).
  template <class T>
  static MT_ALWAYS_INLINE T Exponential(T x) {
    constexpr T kLinear = static_cast<T>(kMinusTwoRootTwoOverPi);
    constexpr T kCube = static_cast<T>(kMinusTwoRootTwoOverPi * kCubic);
    return Exp(x * Fma(kCube, x * x, kLinear));
  }
  template <class T>
  static MT_ALWAYS_INLINE T Slope(T x, T e, T s) {
    constexpr T kLinear = static_cast<T>(-kMinusTwoRootTwoOverPi);
    constexpr T kCube = static_cast<T>(-3 * kMinusTwoRootTwoOverPi * kCubic);
    return s + x * s * (e * s) * Fma(kCube, x * x, kLinear);
  }
};

struct Silu {
  template <class T>
  static MT_ALWAYS_INLINE T Exponential(T x) {
    return Exp(-x);
  }
  template <class T>
  static MT_ALWAYS_INLINE T Slope(T x, T e, T s) {
    return s + x * s * (e * s);
  }
};

// Returns max(x, 0), and NaN for NaN.
template <class T>
MT_ALWAYS_INLINE T Relu(T x) {
  return x < T{0} ? T{0} : x;
}

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kOneOverRootTwoPi = 0.39894228040143267794;

// Phi(-a) for a >= 0, and e^(-a^2 / 2), whose product with 1 / sqrt(2 pi) is the density at a.
template <class T>
struct Tail {
  T probability, exponential;
};
MT_ALWAYS_INLINE Tail<float> TailAt(float a) {
  const float e = Exp(-0.5F * a * a);
  return {NormalTailOverDensity(1.0F / Fma(kNormalTailRate, a, 1.0F)) * e, e};
}
MT_ALWAYS_INLINE Tail<double> TailAt(double a) {
  return {0.5 * ::erfc(a * kRootHalf), Exp(-0.5 * a * a)};
}

template <class T>
MT_ALWAYS_INLINE T Magnitude(T x) {
  return x < T{0} ? -x : x;
}

MT_ALWAYS_INLINE int64_t ChunkAt(int64_t begin, int64_t n) {
  return n - begin < kHalfChunk ? n - begin : kHalfChunk;
}

// y = value(pre).
template <class S, class Value>
MT_ALWAYS_INLINE void Map(const S* pre, S* y, int64_t n, Value value) {
  Compute<S> in[kHalfChunk], out[kHalfChunk];
  for (int64_t begin = 0; begin < n; begin += kHalfChunk) {
    const int64_t count = ChunkAt(begin, n);
    const Compute<S>* __restrict__ x = WidenChunk(pre + begin, count, in);
    Compute<S>* __restrict__ to = TargetChunk(y + begin, out);
    for (int64_t i = 0; i < count; ++i) to[i] = value(x[i]);
    NarrowChunk(to, count, y + begin);
  }
}

// dpre = dy * slope(pre). The slopes go through a separate buffer, because dpre may be dy.
template <class S, class Slope>
MT_ALWAYS_INLINE void MultiplySlopes(const S* dy, const S* pre, S* dpre, int64_t n,
                                     Slope slope_of) {
  Compute<S> in[kHalfChunk], slope[kHalfChunk];
  for (int64_t begin = 0; begin < n; begin += kHalfChunk) {
    const int64_t count = ChunkAt(begin, n);
    const Compute<S>* x = WidenChunk(pre + begin, count, in);
    for (int64_t i = 0; i < count; ++i) slope[i] = slope_of(x[i]);
    const Compute<S>* d = WidenChunk(dy + begin, count, in);
    Compute<S>* to = TargetChunk(dpre + begin, slope);
    for (int64_t i = 0; i < count; ++i) to[i] = d[i] * slope[i];
    NarrowChunk(to, count, dpre + begin);
  }
}

template <class Function, class S>
MT_ALWAYS_INLINE void GatedRange(const S* gate, const S* up, S* y, int64_t n) {
  using T = Compute<S>;
  T gates[kHalfChunk], ups[kHalfChunk], out[kHalfChunk];
  for (int64_t begin = 0; begin < n; begin += kHalfChunk) {
    const int64_t count = ChunkAt(begin, n);
    const T* __restrict__ x = WidenChunk(gate + begin, count, gates);
    const T* __restrict__ u = WidenChunk(up + begin, count, ups);
    T* __restrict__ to = TargetChunk(y + begin, out);
    for (int64_t i = 0; i < count; ++i) {
      to[i] = x[i] / (T{1} + Function::Exponential(x[i])) * u[i];
    }
    NarrowChunk(to, count, y + begin);
  }
}

template <class Function, class S>
MT_ALWAYS_INLINE void GatedGradRange(const GatedGrad<S>& a, int64_t n) {
  using T = Compute<S>;
  T dys[kHalfChunk], gates[kHalfChunk], ups[kHalfChunk], dgates[kHalfChunk], dups[kHalfChunk];
  for (int64_t begin = 0; begin < n; begin += kHalfChunk) {
    const int64_t count = ChunkAt(begin, n);
    const T* __restrict__ d = WidenChunk(a.dy + begin, count, dys);
    const T* __restrict__ x = WidenChunk(a.gate + begin, count, gates);
    const T* __restrict__ u = WidenChunk(a.up + begin, count, ups);
    T* __restrict__ dgate = TargetChunk(a.dgate + begin, dgates);
    T* __restrict__ dup = TargetChunk(a.dup + begin, dups);
    for (int64_t i = 0; i < count; ++i) {
      const T e = Function::Exponential(x[i]);
      const T s = T{1} / (T{1} + e);
      dgate[i] = d[i] * u[i] * Function::Slope(x[i], e, s);
      dup[i] = d[i] * (x[i] * s);
    }
    NarrowChunk(dgate, count, a.dgate + begin);
    NarrowChunk(dup, count, a.dup + begin);
  }
}

}  // namespace

template <class S>
void GeluRange(const S* pre, S* y, int64_t n) {
  using T = Compute<S>;
  Map(
      pre, y, n,
      [](T x) __attribute__((always_inline)) { return x / (T{1} + Gelu::Exponential(x)); });
}

template <class S>
void Relu2Range(const S* pre, S* y, int64_t n) {
  using T = Compute<S>;
  Map(
      pre, y, n, [](T x) __attribute__((always_inline)) { return Relu(x) * Relu(x); });
}

template <class S>
void GeluErfRange(const S* pre, S* y, int64_t n) {
  using T = Compute<S>;
  Map(
      pre, y, n, [](T x) __attribute__((always_inline)) {
        const T a = Magnitude(x);
        return Fma(-a, TailAt(a).probability, Relu(x));
      });
}

template <class S>
void GeluGradRange(const S* dy, const S* pre, S* dpre, int64_t n) {
  using T = Compute<S>;
  MultiplySlopes(
      dy, pre, dpre, n, [](T x) __attribute__((always_inline)) {
        const T e = Gelu::Exponential(x);
        return Gelu::Slope(x, e, T{1} / (T{1} + e));
      });
}

template <class S>
void Relu2GradRange(const S* dy, const S* pre, S* dpre, int64_t n) {
  using T = Compute<S>;
  MultiplySlopes(
      dy, pre, dpre, n, [](T x) __attribute__((always_inline)) { return T{2} * Relu(x); });
}

template <class S>
void GeluErfGradRange(const S* dy, const S* pre, S* dpre, int64_t n) {
  using T = Compute<S>;
  MultiplySlopes(
      dy, pre, dpre, n, [](T x) __attribute__((always_inline)) {
        constexpr T kScale = static_cast<T>(kOneOverRootTwoPi);
        const auto [probability, exponential] = TailAt(Magnitude(x));
        const T below = x < T{0} ? probability : T{1} - probability;
        return Fma(x * kScale, exponential, below);
      });
}

template <class S>
void SwigluRange(const S* gate, const S* up, S* y, int64_t n) {
  GatedRange<Silu>(gate, up, y, n);
}
template <class S>
void GegluRange(const S* gate, const S* up, S* y, int64_t n) {
  GatedRange<Gelu>(gate, up, y, n);
}
template <class S>
void SwigluGradRange(const GatedGrad<S>& a, int64_t n) {
  GatedGradRange<Silu>(a, n);
}
template <class S>
void GegluGradRange(const GatedGrad<S>& a, int64_t n) {
  GatedGradRange<Gelu>(a, n);
}

template void GeluRange<float>(const float*, float*, int64_t);
template void Relu2Range<float>(const float*, float*, int64_t);
template void GeluErfRange<float>(const float*, float*, int64_t);
template void GeluGradRange<float>(const float*, const float*, float*, int64_t);
template void Relu2GradRange<float>(const float*, const float*, float*, int64_t);
template void GeluErfGradRange<float>(const float*, const float*, float*, int64_t);
template void SwigluRange<float>(const float*, const float*, float*, int64_t);
template void GegluRange<float>(const float*, const float*, float*, int64_t);
template void SwigluGradRange<float>(const GatedGrad<float>&, int64_t);
template void GegluGradRange<float>(const GatedGrad<float>&, int64_t);
template void GeluRange<double>(const double*, double*, int64_t);
template void Relu2Range<double>(const double*, double*, int64_t);
template void GeluErfRange<double>(const double*, double*, int64_t);
template void GeluGradRange<double>(const double*, const double*, double*, int64_t);
template void Relu2GradRange<double>(const double*, const double*, double*, int64_t);
template void GeluErfGradRange<double>(const double*, const double*, double*, int64_t);
template void SwigluRange<double>(const double*, const double*, double*, int64_t);
template void GegluRange<double>(const double*, const double*, double*, int64_t);
template void SwigluGradRange<double>(const GatedGrad<double>&, int64_t);
template void GegluGradRange<double>(const GatedGrad<double>&, int64_t);
template void GeluRange<Bf16>(const Bf16*, Bf16*, int64_t);
template void Relu2Range<Bf16>(const Bf16*, Bf16*, int64_t);
template void GeluErfRange<Bf16>(const Bf16*, Bf16*, int64_t);
template void GeluGradRange<Bf16>(const Bf16*, const Bf16*, Bf16*, int64_t);
template void Relu2GradRange<Bf16>(const Bf16*, const Bf16*, Bf16*, int64_t);
template void GeluErfGradRange<Bf16>(const Bf16*, const Bf16*, Bf16*, int64_t);
template void SwigluRange<Bf16>(const Bf16*, const Bf16*, Bf16*, int64_t);
template void GegluRange<Bf16>(const Bf16*, const Bf16*, Bf16*, int64_t);
template void SwigluGradRange<Bf16>(const GatedGrad<Bf16>&, int64_t);
template void GegluGradRange<Bf16>(const GatedGrad<Bf16>&, int64_t);
template void GeluRange<F16>(const F16*, F16*, int64_t);
template void Relu2Range<F16>(const F16*, F16*, int64_t);
template void GeluErfRange<F16>(const F16*, F16*, int64_t);
template void GeluGradRange<F16>(const F16*, const F16*, F16*, int64_t);
template void Relu2GradRange<F16>(const F16*, const F16*, F16*, int64_t);
template void GeluErfGradRange<F16>(const F16*, const F16*, F16*, int64_t);
template void SwigluRange<F16>(const F16*, const F16*, F16*, int64_t);
template void GegluRange<F16>(const F16*, const F16*, F16*, int64_t);
template void SwigluGradRange<F16>(const GatedGrad<F16>&, int64_t);
template void GegluGradRange<F16>(const GatedGrad<F16>&, int64_t);

}  // namespace mt::kernels::cpu
