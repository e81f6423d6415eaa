// Sums over a warp and over a thread block in a fixed order, so that an op's bits never depend on
// timing.
#pragma once

#include <cstdint>

namespace mt::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Returns the warp's sum, the same in every lane.
template <class T>
__device__ __forceinline__ T WarpSum(T x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

// Returns the warp's maximum, the same in every lane.
__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, offset));
  }
  return x;
}

// Returns the sum over a block of up to 32 warps, the same in every thread. All threads of the
// block call it. `shared` holds one value per warp and may be reused by the next call.
template <class T>
__device__ __forceinline__ T BlockSum(T x, T* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
  x = WarpSum(x);
  __syncthreads();  // the last call's values have been read
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  T total = 0;
  for (int w = 0; w < warps; ++w) total += shared[w];
  return total;
}

}  // namespace mt::kernels::cuda
