// The second stage of sums over rows: partial sums of blocks of rows, added in the order of blocks.
#pragma once

#include "kernels/core/tensor.h"
#include "kernels/cuda/cuda_device.h"

namespace mt::kernels::cuda {

// Partial sums: `blocks` vectors, `stride` elements apart.
struct ColumnPartials {
  const float* data = nullptr;
  int64_t blocks = 0, stride = 0;
};

// out [n] (f32) = or += the sum over blocks of elements [first, first + n) of each vector; nothing
// where out is absent.
void CombineColumns(const Stream& stream, const ColumnPartials& partials, int64_t first,
                    GradMode mode, const Tensor& out);

}  // namespace mt::kernels::cuda
