// Rotation of q and k heads, their norm, and the gradients over a range of rows; the arguments are
// those of kernels/ops/rope.h as pointers, null where absent. S is any float type.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {

template <class S>
struct RotateRows {
  int64_t rows_per_position = 1, a = 0, g = 0, d = 0, channels = 0, r = 0;
  S* qkv = nullptr;  // [rows, (a + 2g) d]: values, or their gradient
  const Compute<S>* table = nullptr;
  const int32_t* positions = nullptr;
  const S* q_gain = nullptr;
  const S* k_gain = nullptr;
  bool one_plus = false;
  Compute<S> eps = 0;
  S* input = nullptr;          // [rows, (a + g) d]
  Compute<S>* rstd = nullptr;  // [rows, a + g]
};

// Normalises (with gains) and rotates the q and k heads of rows [row_begin, row_end) in place.
template <class S>
void RotateRange(const RotateRows<S>& x, int64_t row_begin, int64_t row_end);

// Sums over rows and heads, each [d], and one row [d] of scratch; used with gains only.
template <class T>
struct RotateGradSums {
  T* dq_gain = nullptr;
  T* dk_gain = nullptr;
  T* scratch = nullptr;
};

// Replaces the gradients of rows [row_begin, row_end) in place and *adds* the gains' gradients of
// their heads, in ascending order, to the sums.
template <class S>
void RotateGradRange(const RotateRows<S>& x, int64_t row_begin, int64_t row_end,
                     const RotateGradSums<Compute<S>>& to);

}  // namespace mt::kernels::cpu
