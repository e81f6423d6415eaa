// Square sums, AdamW and SGD over a contiguous range of n elements (formulas:
// kernels/ops/update.h). T is float or double.
#pragma once

#include <cstdint>

namespace mt::kernels::cpu {

// Adds the sum of squares of the finite elements, in fp64, to out[0] and the number of non-finite
// elements to out[1].
template <class T>
void SquareSumRange(const T* gradient, int64_t n, double* out);

// The scalars of AdamW, each rounded to T once.
template <class T>
struct AdamWScalars {
  T factor = 1, lr = 0, weight_decay = 0;
  T beta1 = 0, beta2 = 0, one_minus_beta1 = 0, one_minus_beta2 = 0;
  T correction1 = 1, correction2 = 1, eps = 0;
};

template <class T>
void AdamWRange(const AdamWScalars<T>& s, const T* gradient, T* master, T* m, T* v, int64_t n);

// The scalars of SGD, each rounded to T once.
template <class T>
struct SgdScalars {
  T factor = 1, lr = 0, weight_decay = 0, mu = 0;
};

// `momentum` is null if mu is 0.
template <class T>
void SgdRange(const SgdScalars<T>& s, const T* gradient, T* master, T* momentum, int64_t n);

}  // namespace mt::kernels::cpu
