// Cross-entropy over a range of rows; the arguments are those of kernels/ops/loss.h as pointers. S
// is any float type.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/half.h"

namespace mt::kernels::cpu {

template <class S>
struct LossStatsRows {
  const S* logits = nullptr;  // [rows, v]
  int64_t v = 0;
  int64_t valid = 0;                // the first columns, which are not padding
  const int32_t* labels = nullptr;  // [rows]
  int64_t first_column = 0;
  Compute<S>* stats = nullptr;  // [rows, 3]
};

// Writes the statistics of rows [row_begin, row_end).
template <class S>
void LossStatsRange(const LossStatsRows<S>& a, int64_t row_begin, int64_t row_end);

template <class S>
struct LossFinishRows {
  S* logits = nullptr;  // [rows, v], overwritten where write_gradient
  int64_t v = 0, valid = 0;
  const int32_t* labels = nullptr;
  int64_t first_column = 0;
  const Compute<S>* stats = nullptr;  // [shards, rows, 3]
  int64_t shards = 1, rows = 0;
  const float* weight = nullptr;  // [rows]
  double seed = 0;                // 1 / (G S) times the loss scale
  bool write_gradient = true;
};

// Adds the rows' weighted losses and weights to sums[0] and sums[1], in ascending row order.
template <class S>
void LossFinishRange(const LossFinishRows<S>& a, int64_t row_begin, int64_t row_end, double* sums);

}  // namespace mt::kernels::cpu
