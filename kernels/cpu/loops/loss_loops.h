// Cross-entropy of a range of rows; the arguments are kernels/ops/loss.h's as pointers. T is float
// or double, accumulator type included.
#pragma once

#include <cstdint>

namespace mt::kernels::cpu {

template <class T>
struct LossStatsRows {
  const T* logits = nullptr;  // [rows, v]
  int64_t v = 0;
  int64_t valid = 0;                // columns that are not padding
  const int32_t* labels = nullptr;  // [rows]
  int64_t first_column = 0;
  T* stats = nullptr;  // [rows, 3]
};

template <class T>
void LossStatsRange(const LossStatsRows<T>& a, int64_t row_begin, int64_t row_end);

template <class T>
struct LossFinishRows {
  T* logits = nullptr;  // [rows, v], overwritten where write_gradient
  int64_t v = 0, valid = 0;
  const int32_t* labels = nullptr;
  int64_t first_column = 0;
  const T* stats = nullptr;  // [shards, rows, 3]
  int64_t shards = 1, rows = 0;
  const float* weight = nullptr;  // [rows]
  double seed = 0;                // loss scale included
  bool write_gradient = true;
};

// Adds the rows' weighted losses and weights to sums[0] and sums[1], rows in rising order.
template <class T>
void LossFinishRange(const LossFinishRows<T>& a, int64_t row_begin, int64_t row_end, double* sums);

}  // namespace mt::kernels::cpu
