// Grid-stride loops over flat tensors, eight elements per thread and iteration. An op is a struct
// with
//   template <Access kAccess> __device__ void Run(int64_t first, int count) const;
// which handles elements [first, first + count); count is 8 with kVector.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/math.h"
#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/dependent_launch.cuh"
#include "kernels/cuda/device/numeric.cuh"

namespace mt::kernels::cuda {

inline constexpr int kElementwiseThreads = 256;

// kElementwiseThreads threads per block, no shared memory.
template <class Op, bool kAligned>
__global__ void __launch_bounds__(kElementwiseThreads) ElementwiseKernel(Op op, int64_t n) {
  LetNextKernelBegin();
  WaitForKernelBefore();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * kGroup;
  int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kGroup;
  for (; first < n; first += step) {
    if (kAligned && first + kGroup <= n) {
      op.template Run<Access::kVector>(first, kGroup);
    } else {
      op.template Run<Access::kElements>(first, static_cast<int>(min(n - first, int64_t{kGroup})));
    }
  }
}

inline bool IsAligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Enqueues `op` over n elements. `aligned`: all of its pointers are 16-byte aligned. `name` is the
// op's name in error messages.
template <class Op>
void LaunchElementwise(const Stream& stream, const Op& op, int64_t n, bool aligned,
                       const char* name) {
  if (n == 0) return;
  constexpr int64_t kMaxBlocks = int64_t{1} << 20;
  const int64_t blocks =
      std::min(base::CeilDiv(n, int64_t{kElementwiseThreads} * kGroup), kMaxBlocks);
  LaunchDependent(stream, aligned ? ElementwiseKernel<Op, true> : ElementwiseKernel<Op, false>,
                  {static_cast<unsigned>(blocks), kElementwiseThreads}, op, n);
  CheckLaunch(name);
}

}  // namespace mt::kernels::cuda
