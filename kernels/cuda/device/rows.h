// Matrix kernels that several op families need: the second stage of sums over rows (the partial
// sums of blocks of rows, added in block order), and rows filled with one row.
#pragma once

#include <array>

#include "kernels/core/tensor.h"
#include "kernels/cuda/device/cuda_device.h"

namespace mt::kernels::cuda {

// Partial sums in device memory: `blocks` vectors, `stride` elements apart.
struct ColumnPartials {
  const float* data = nullptr;
  int64_t blocks = 0, stride = 0;
};

inline constexpr int kMaxSums = 3;
using SumOutputs = std::array<Tensor, kMaxSums>;

// outs[k] [n] (f32) = or += the sum over blocks of elements [k n, (k + 1) n) of each vector; absent
// outputs are skipped. One kernel launch.
void CombineColumns(const Stream& stream, const ColumnPartials& partials, int64_t n, GradMode mode,
                    const SumOutputs& outs);

// Sets every row of y [rows, n] to `row` [n]; both have the same float type.
void FillRows(const Stream& stream, const Tensor& row, const Tensor& y);

}  // namespace mt::kernels::cuda
