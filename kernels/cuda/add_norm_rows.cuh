// What AddNorm and its gradient share: operands as plain pointers, and the mask of a row.
#pragma once

#include <cstdint>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/ops/add_norm.h"

namespace mt::kernels::cuda {

// The hidden dropout of rows in [s, b] order; threshold 0 = none.
struct HiddenDropout {
  uint32_t threshold = 0;
  float scale = 1;
  uint64_t key = 0;
  const int64_t* samples = nullptr;    // [b]
  const int32_t* positions = nullptr;  // [s]
};

inline HiddenDropout RawDropout(const Dropout& d, int64_t rows, int64_t batch) {
  if (!d.rate.active()) return {};
  CHECK(d.samples.NumElements() == batch && d.positions.NumElements() * batch == rows);
  return {.threshold = d.rate.threshold,
          .scale = static_cast<float>(d.rate.Scale()),
          .key = d.key,
          .samples = d.samples.Data<int64_t>(),
          .positions = d.positions.Data<int32_t>()};
}

// Drops eight channels of a row, from `channel` (a multiple of 8) on.
__device__ __forceinline__ void DropRow(const HiddenDropout& d, int64_t row, int64_t batch,
                                        int64_t channel, Float8* x) {
  const Philox4 counter =
      HiddenDropoutCounter(channel, d.positions[row / batch], d.samples[row % batch]);
  DropHidden(d.key, counter, d.threshold, d.scale, x);
}

// Fills `out` with the partials' data; false where one of them is not 16-byte aligned.
template <class S>
bool FillPartials(const Partials& partials, int64_t elements, const S** out) {
  CHECK(partials.count >= 0 && partials.count <= kMaxPartials) << partials.count;
  bool aligned = true;
  for (int i = 0; i < partials.count; ++i) {
    const Tensor& tensor = partials.tensor[static_cast<size_t>(i)];
    CHECK_EQ(tensor.NumElements(), elements);
    out[i] = tensor.Data<S>();
    aligned = aligned && IsAligned16(tensor.data);
  }
  return aligned;
}

// Whether rows of h elements of all tensors begin at 16-byte borders.
template <class S, class... Tensors>
bool RowsAligned(int64_t h, const Tensors&... tensors) {
  return h % kGroup == 0 && (IsAligned16(tensors.data) && ...);
}

}  // namespace mt::kernels::cuda
