// The two forms of a tensor of positions, by its number of elements.
// Legend: R rows in [s, b] order (row = s_index * b + b_index).
#pragma once

#include <cstdint>

#include "common/base/check.h"
#include "kernels/core/tensor.h"

namespace mt::kernels {

// How many rows in a row have one element of `positions` in common: b for i32 [R / b], where all
// samples have the same positions, and 1 for i32 [R], where each row has its own, as those that
// restart at documents. Row r has element r / result. CHECKs that it is one of the two.
inline int64_t RowsPerPosition(const Tensor& positions, int64_t rows, int64_t batch) {
  const int64_t count = positions.NumElements();
  if (count == rows) return 1;
  CHECK_EQ(count * batch, rows) << "positions of " << rows << " rows, batch " << batch;
  return batch;
}

}  // namespace mt::kernels
