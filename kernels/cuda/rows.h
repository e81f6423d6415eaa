// Pieces that several families need of matrices: the second stage of sums over rows (partial sums
// of blocks of rows, added in the order of blocks), and rows filled with one row.
#pragma once

#include <array>

#include "kernels/core/tensor.h"
#include "kernels/cuda/cuda_device.h"

namespace mt::kernels::cuda {

// Partial sums: `blocks` vectors, `stride` elements apart.
struct ColumnPartials {
  const float* data = nullptr;
  int64_t blocks = 0, stride = 0;
};

inline constexpr int kMaxSums = 3;
using SumOutputs = std::array<Tensor, kMaxSums>;

// outs[k] [n] (f32) = or += the sum over blocks of elements [k n, (k + 1) n) of each vector; absent
// ones are left out. One launch.
void CombineColumns(const Stream& stream, const ColumnPartials& partials, int64_t n, GradMode mode,
                    const SumOutputs& outs);

// Every row of y [rows, n] = row [n], of the same float type.
void FillRows(const Stream& stream, const Tensor& row, const Tensor& y);

}  // namespace mt::kernels::cuda
