// The operands of the rotation as plain pointers, and the launchers of QK norm (qk_norm.cu).
// Legend: as in kernels/ops/rope.h.
#pragma once

#include "kernels/cuda/device/divider.h"
#include "kernels/cuda/device/elementwise.cuh"
#include "kernels/cuda/device/reduce.cuh"

namespace mt::kernels::cuda {

inline constexpr int kRopeThreads = 256;
inline constexpr int64_t kLargestNormedHead = 256;

template <class S>
struct RotateRows {
  int64_t rows, a, g, d, r;   // r is 0 without rotation
  float channels;             // number of channels that the norm's mean is over
  Divider rows_per_position;  // kernels/ops/row_positions.h
  Divider heads;              // a + g
  S* qkv;                     // [rows, (a + 2g) d]: values, or their gradient
  const float* table;
  const int32_t* positions;
  const S *q_gain, *k_gain;
  float plus;
  float eps;
  S* input;     // [rows, (a + g) d]
  float* rstd;  // [rows, a + g]
  float* sums;  // [grid, 2, d]
};

// The two channels of a rotated pair.
struct Pair {
  float first, second;
};

__device__ __forceinline__ Pair TurnPair(const Pair& x, float cos, float sin) {
  return {x.first * cos - x.second * sin, x.second * cos + x.first * sin};
}

// Enqueues norm and rotation of all q and k heads.
template <class S>
void LaunchNorm(const Stream& stream, const RotateRows<S>& a);
// Enqueues their gradients on `blocks` thread blocks; each leaves its part of the gains' gradients
// in a.sums.
template <class S>
void LaunchNormGrad(const Stream& stream, const RotateRows<S>& a, int64_t blocks);

}  // namespace mt::kernels::cuda
