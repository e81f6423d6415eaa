// AddNorm and its gradient over a range of rows; the arguments are those of kernels/ops/add_norm.h
// as pointers, null where absent. S is any float type; statistics and sums are Compute<S>.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/dropout.h"
#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {

template <class S>
struct AddNormRows {
  int64_t h = 0, batch = 1;
  const S* residual = nullptr;
  const S* partials[8] = {};
  int num_partials = 0;
  bool rounded = false;  // the partials' sum, to S
  const S* bias = nullptr;
  const S* position_table = nullptr;
  const int32_t* positions = nullptr;  // of the table
  int64_t rows_per_position = 1;
  HiddenDropout dropout;
  bool layer_norm = true;  // else RMSNorm
  bool one_plus = false;
  Compute<S> eps = 0;
  const S* gain = nullptr;
  const S* shift = nullptr;
  S* residual_out = nullptr;
  S* y = nullptr;
  Compute<S>* mean = nullptr;
  Compute<S>* rstd = nullptr;
};

// Writes residual_out and, with a gain, y and the statistics of rows [row_begin, row_end).
template <class S>
void AddNormRange(const AddNormRows<S>& a, int64_t row_begin, int64_t row_end);

template <class S>
struct AddNormGradRows {
  int64_t h = 0, batch = 1;
  const S* dy[8] = {};
  int num_dy = 0;
  bool rounded = false;  // the sum of dy, to S
  const S* dresidual_in = nullptr;
  const S* residual_out = nullptr;
  const Compute<S>* mean = nullptr;
  const Compute<S>* rstd = nullptr;
  const S* gain = nullptr;
  bool layer_norm = true;
  bool one_plus = false;
  HiddenDropout dropout;
  S* dresidual = nullptr;
  S* dbranch = nullptr;  // null without dropout, when it equals dresidual
};

// Sums over rows, each [h], null where absent, and one row [h] of scratch.
template <class T>
struct AddNormGradSums {
  T* dgain = nullptr;
  T* dshift = nullptr;
  T* dbias = nullptr;
  T* scratch = nullptr;
};

// Writes dresidual and dbranch of rows [row_begin, row_end) and *adds* these rows, in ascending
// order, to the sums.
template <class S>
void AddNormGradRange(const AddNormGradRows<S>& a, int64_t row_begin, int64_t row_end,
                      const AddNormGradSums<Compute<S>>& to);

}  // namespace mt::kernels::cpu
