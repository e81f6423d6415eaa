// The update rules element by element, written so that they vectorise: no branch depends on data.
// Divisions and square roots follow the order of Apex's FusedAdam.
#include "kernels/cpu/loops/update_loops.h"

#include "kernels/cpu/loops/reduce.h"

namespace mt::kernels::cpu {

template <class T>
void SquareSumRange(const T* gradient, int64_t n, double* out) {
  constexpr int64_t kChunk = 256;
  double squares[kChunk];
  int64_t nonfinite = 0;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = n - begin < kChunk ? n - begin : kChunk;
    int32_t bad = 0;
    for (int64_t i = 0; i < count; ++i) {
      const T g = gradient[begin + i];
      const bool finite = g - g == 0;  // false for NaN and infinities alone
      squares[i] = finite ? static_cast<double>(g) * static_cast<double>(g) : 0.0;
      bad += finite ? 0 : 1;
    }
    nonfinite += bad;
    total += Sum(squares, count);
  }
  out[0] += total;
  out[1] += static_cast<double>(nonfinite);
}

template <class T>
void AdamWRange(const AdamWScalars<T>& s, const T* __restrict__ gradient, T* __restrict__ master,
                T* __restrict__ m, T* __restrict__ v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T g = gradient[i] * s.factor;
    const T m_new = s.beta1 * m[i] + s.one_minus_beta1 * g;
    const T v_new = s.beta2 * v[i] + s.one_minus_beta2 * g * g;
    const T step = (m_new / s.correction1) / (Sqrt(v_new / s.correction2) + s.eps) +
                   s.weight_decay * master[i];
    m[i] = m_new;
    v[i] = v_new;
    master[i] -= s.lr * step;
  }
}

template <class T>
void SgdRange(const SgdScalars<T>& s, const T* __restrict__ gradient, T* __restrict__ master,
              T* __restrict__ momentum, int64_t n) {
  if (momentum == nullptr) {
    for (int64_t i = 0; i < n; ++i) {
      master[i] -= s.lr * (gradient[i] * s.factor + s.weight_decay * master[i]);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T u = s.mu * momentum[i] + gradient[i] * s.factor;
    momentum[i] = u;
    master[i] -= s.lr * (u + s.weight_decay * master[i]);
  }
}

template void SgdRange<float>(const SgdScalars<float>&, const float*, float*, float*, int64_t);
template void SgdRange<double>(const SgdScalars<double>&, const double*, double*, double*, int64_t);
template void SquareSumRange<float>(const float*, int64_t, double*);
template void SquareSumRange<double>(const double*, int64_t, double*);
template void AdamWRange<float>(const AdamWScalars<float>&, const float*, float*, float*, float*,
                                int64_t);
template void AdamWRange<double>(const AdamWScalars<double>&, const double*, double*, double*,
                                 double*, int64_t);

}  // namespace mt::kernels::cpu
