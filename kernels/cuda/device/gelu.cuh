// GELU in its tanh form, for all kernels that compute it. With z = 2 sqrt(2 / pi) (x + 0.044715
// x^3) and s = 1 / (1 + e^(-z)): gelu(x) = x s, gelu'(x) = s + x z' s (1 - s). s comes from the
// exponential and not as (1 + tanh(z / 2)) / 2, which cancels where x is negative: so value and
// slope keep their relative precision in the tail, where training has most of its elements.
#pragma once

#include "kernels/cuda/device/elementwise.cuh"

namespace mt::kernels::cuda {

inline constexpr float kGeluScale = 1.5957691216057307F;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715F;

// -z times `unit`: log2(e) where a power of two follows.
__device__ __forceinline__ float GeluMinusZ(float x, float unit) {
  const float scale = -kGeluScale * unit;
  return x * fmaf(scale * kGeluCubic, x * x, scale);
}

// z'(x)
__device__ __forceinline__ float GeluInnerSlope(float x) {
  return fmaf(3 * kGeluScale * kGeluCubic, x * x, kGeluScale);
}

// x[i] = 1 / (1 + 2^x[i]), within 2^-21 of it where 2^x is neither 0 nor infinite; then the limits
// 1 and 0. In stages over all eight elements; otherwise the compiler emits eight dependency chains
// one after the other.
__device__ __forceinline__ void InverseOfOnePlusPower(float (&x)[kGroup]) {
#pragma unroll
  for (int i = 0; i < kGroup; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
#pragma unroll
  for (int i = 0; i < kGroup; ++i) x[i] += 1.0F;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) asm volatile("rcp.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
}

}  // namespace mt::kernels::cuda
