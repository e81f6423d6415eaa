// Sums and maxima over a contiguous range, in a fixed order that suits vector units: 32 lanes
// (element i goes to lane i mod 32 as long as whole groups of 32 last), lanes added vector by
// vector, remaining elements one by one. The order is written out here, so no compiler flag changes
// bits. 16-bit elements (S) are widened (T = Compute<S>) as they are loaded. Included only by the
// files of this folder.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/fast_math.h"
#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {

inline constexpr int kLanes = 32;

// Vectors of 32 bytes, the unit of AVX2: narrower machines split them, and wider ones lose nothing.
template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = float __attribute__((vector_size(32)));
};
template <>
struct VectorOf<double> {
  using Type = double __attribute__((vector_size(32)));
};

template <class T>
struct Lanes {
  using Vector = typename VectorOf<T>::Type;
  static constexpr int kWidth = static_cast<int>(sizeof(Vector) / sizeof(T));
  static constexpr int kVectors = kLanes / kWidth;
  Vector v[kVectors];

  MT_ALWAYS_INLINE void Set(T value) {
    for (int i = 0; i < kVectors; ++i) v[i] = value - Vector{};
  }
  MT_ALWAYS_INLINE void Load(const T* from) { __builtin_memcpy(v, from, sizeof(v)); }
  template <class S>
  MT_ALWAYS_INLINE void Load(const S* from) {
    T wide[kLanes];
    for (int i = 0; i < kLanes; ++i) wide[i] = Widen(from[i]);
    __builtin_memcpy(v, wide, sizeof(v));
  }

  MT_ALWAYS_INLINE T Sum() const {
    Vector total = v[0];
    for (int i = 1; i < kVectors; ++i) total += v[i];
    T sum = 0;
    for (int i = 0; i < kWidth; ++i) sum += total[i];
    return sum;
  }
};

// Sums the groups of kLanes elements, then the remaining elements. `lanes_term(Lanes* sum, i)` adds
// the group at i to the lanes; `term(i)` returns one element's value.
template <class T, class LanesTerm, class Term>
MT_ALWAYS_INLINE T LaneSum(int64_t n, LanesTerm lanes_term, Term term) {
  Lanes<T> sum;
  sum.Set(0);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) lanes_term(&sum, i);
  T total = sum.Sum();
  for (; i < n; ++i) total += term(i);
  return total;
}

template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE T Sum(const S* x, int64_t n) {
  return LaneSum<T>(
      n,
      [x](Lanes<T> * sum, int64_t i) __attribute__((always_inline)) {
        Lanes<T> a;
        a.Load(x + i);
        for (int k = 0; k < Lanes<T>::kVectors; ++k) sum->v[k] += a.v[k];
      },
      [x](int64_t i) __attribute__((always_inline)) { return Widen(x[i]); });
}

template <class X, class Y, class T = Compute<X>>
MT_ALWAYS_INLINE T Dot(const X* x, const Y* y, int64_t n) {
  return LaneSum<T>(
      n, [ x, y ](Lanes<T> * sum, int64_t i) __attribute__((always_inline)) {
        Lanes<T> a, b;
        a.Load(x + i);
        b.Load(y + i);
        for (int k = 0; k < Lanes<T>::kVectors; ++k) sum->v[k] += a.v[k] * b.v[k];
      },
      [ x, y ](int64_t i) __attribute__((always_inline)) { return Widen(x[i]) * Widen(y[i]); });
}

// Returns the sum of (x - center)^2.
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE T SquaredDeviation(const S* x, T center, int64_t n) {
  return LaneSum<T>(
      n, [ x, center ](Lanes<T> * sum, int64_t i) __attribute__((always_inline)) {
        Lanes<T> a;
        a.Load(x + i);
        for (int k = 0; k < Lanes<T>::kVectors; ++k) {
          const typename Lanes<T>::Vector d = a.v[k] - center;
          sum->v[k] += d * d;
        }
      },
      [ x, center ](int64_t i) __attribute__((always_inline)) {
        return (Widen(x[i]) - center) * (Widen(x[i]) - center);
      });
}

// Returns the largest element, -infinity for none. NaN elements are ignored (they surface in the
// sum of exponentials that follows every maximum).
template <class S, class T = Compute<S>>
MT_ALWAYS_INLINE T Max(const S* x, int64_t n) {
  Lanes<T> best;
  best.Set(static_cast<T>(-__builtin_inf()));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes<T> a;
    a.Load(x + i);
    for (int k = 0; k < Lanes<T>::kVectors; ++k)
      best.v[k] = a.v[k] > best.v[k] ? a.v[k] : best.v[k];
  }
  T largest = static_cast<T>(-__builtin_inf());
  for (int k = 0; k < Lanes<T>::kVectors; ++k) {
    for (int l = 0; l < Lanes<T>::kWidth; ++l) {
      largest = best.v[k][l] > largest ? best.v[k][l] : largest;
    }
  }
  for (; i < n; ++i) largest = Widen(x[i]) > largest ? Widen(x[i]) : largest;
  return largest;
}

}  // namespace mt::kernels::cpu
