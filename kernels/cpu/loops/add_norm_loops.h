// AddNorm and its gradient over a range of rows; the arguments are kernels/ops/add_norm.h's as
// pointers, null where absent. T is float or double, accumulator type included.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/dropout.h"

namespace mt::kernels::cpu {

template <class T>
struct AddNormRows {
  int64_t h = 0, batch = 1;
  const T* residual = nullptr;
  const T* partials[8] = {};
  int num_partials = 0;
  const T* bias = nullptr;
  const T* position_table = nullptr;
  const int32_t* positions = nullptr;
  HiddenDropout dropout;
  bool layer_norm = true;  // else RMSNorm
  bool one_plus = false;
  T eps = 0;
  const T* gain = nullptr;
  const T* shift = nullptr;
  T* residual_out = nullptr;
  T* y = nullptr;
  T* mean = nullptr;
  T* rstd = nullptr;
};

template <class T>
void AddNormRange(const AddNormRows<T>& a, int64_t row_begin, int64_t row_end);

template <class T>
struct AddNormGradRows {
  int64_t h = 0, batch = 1;
  const T* dy[8] = {};
  int num_dy = 0;
  const T* dresidual_in = nullptr;
  const T* residual_out = nullptr;
  const T* mean = nullptr;
  const T* rstd = nullptr;
  const T* gain = nullptr;
  bool layer_norm = true;
  bool one_plus = false;
  HiddenDropout dropout;
  T* dresidual = nullptr;
  T* dbranch = nullptr;  // with dropout only; null: the same values as dresidual
};

// Sums over rows [h], null where absent, and a row of scratch [h].
template <class T>
struct AddNormGradSums {
  T* dgain = nullptr;
  T* dshift = nullptr;
  T* dbias = nullptr;
  T* scratch = nullptr;
};

// Writes dresidual and dbranch of the rows and *adds* the rows, in rising order, to the sums.
template <class T>
void AddNormGradRange(const AddNormGradRows<T>& a, int64_t row_begin, int64_t row_end,
                      const AddNormGradSums<T>& to);

}  // namespace mt::kernels::cpu
