// With u = sqrt(2/pi) (x + 0.044715 x^3): 0.5 (1 + tanh u) = 1 / (1 + e^(-2u)) exactly, so gelu is
// one exp and one division, without the cancellation of 1 + tanh u at large negative x.
#include "kernels/cpu/loops/act_loops.h"

#include "kernels/cpu/loops/fast_math.h"

namespace mt::kernels::cpu {
namespace {

constexpr double kMinusTwoRootTwoOverPi = -1.5957691216057307117597842397375;
constexpr double kCubic = 0.044715;

// e^(-2u) of x.
template <class T>
MT_ALWAYS_INLINE T ExpMinusTwoU(T x) {
  constexpr T kLinear = static_cast<T>(kMinusTwoRootTwoOverPi);
  constexpr T kCube = static_cast<T>(kMinusTwoRootTwoOverPi * kCubic);
  return Exp(x * Fma(kCube, x * x, kLinear));
}

}  // namespace

template <class T>
void GeluRange(const T* __restrict__ pre, T* __restrict__ y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = pre[i] / (T{1} + ExpMinusTwoU(pre[i]));
}

// gelu' = s + x s (1 - s) 2u' with s = 1 / (1 + e), 1 - s = e s, e = e^(-2u). Slopes go through a
// buffer of their own, since dpre may be dy.
template <class T>
void GeluGradRange(const T* dy, const T* __restrict__ pre, T* dpre, int64_t n) {
  constexpr T kLinear = static_cast<T>(-kMinusTwoRootTwoOverPi);
  constexpr T kCube = static_cast<T>(-3 * kMinusTwoRootTwoOverPi * kCubic);
  constexpr int64_t kChunk = 256;
  T slope[kChunk];
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = n - begin < kChunk ? n - begin : kChunk;
    for (int64_t i = 0; i < count; ++i) {
      const T x = pre[begin + i];
      const T e = ExpMinusTwoU(x);
      const T s = T{1} / (T{1} + e);
      slope[i] = s + x * s * (e * s) * Fma(kCube, x * x, kLinear);
    }
    for (int64_t i = 0; i < count; ++i) dpre[begin + i] = dy[begin + i] * slope[i];
  }
}

template void GeluRange<float>(const float*, float*, int64_t);
template void GeluRange<double>(const double*, double*, int64_t);
template void GeluGradRange<float>(const float*, const float*, float*, int64_t);
template void GeluGradRange<double>(const double*, const double*, double*, int64_t);

}  // namespace mt::kernels::cpu
