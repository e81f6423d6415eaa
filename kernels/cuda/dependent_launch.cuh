// A kernel that may be set up while the kernel before it in its stream ends (programmatic dependent
// launch, compute capability 9.0; before that launched as usual): the way of a launch to the device
// is then no gap. The kernel before need not know of it; where it calls LetNextKernelBegin, blocks
// come while its last ones still run. A recording keeps it so.
//
// What makes a chain of such kernels as ordered as any stream: each of them, in every thread and
// before it touches memory or returns, calls WaitForKernelBefore. That wait ends when the kernel
// before has ended and its writes are seen; and since that one ended no sooner than its own wait,
// when all before it have. A library's kernel that is launched so must wait for its own operands,
// which comes to the same. A kernel launched as usual, an event, a copy wait for ends of kernels
// anyhow. Blocks that wait are in no kernel's way: they come once all blocks before them run.
#pragma once

#include <utility>

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_device.h"

namespace mt::kernels::cuda {

// Once a block has little left to do, or at its begin: the next kernel may be set up when all
// blocks have called this or ended. It promises nothing of what they write.
__device__ __forceinline__ void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// First of all in a kernel that LaunchDependent launches, whose operands must be no __restrict__:
// such loads could be moved in front of the wait.
__device__ __forceinline__ void WaitForKernelBefore() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// The largest part of an SM's memory as shared memory: a second stage is as short as the gap in
// front of it, and an SM that changes the division waits until it is idle, so both stages ask for
// the same.
template <class Kernel>
void PreferShared(Kernel kernel) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
}

struct LaunchShape {
  dim3 grid, threads;
  int64_t shared_bytes = 0;  // dynamic
};

// Launches `kernel`, which calls WaitForKernelBefore.
template <class... Params, class... Args>
void LaunchDependent(const Stream& stream, void (*kernel)(Params...), const LaunchShape& shape,
                     Args&&... args) {
  const CudaStream& cuda_stream = CudaStreamOf(stream);
  int major = 0;
  CUDA_CHECK(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda_stream.ordinal()));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = cuda_stream.raw();
  config.attrs = &early;
  config.numAttrs = major >= 9 ? 1 : 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

}  // namespace mt::kernels::cuda
