// A kernel that may be set up while the kernel before it in its stream ends (programmatic dependent
// launch, compute capability 9.0; before that launched as usual): the second stage of a sum is as
// short as the gap in front of it. Both ask for the largest part of an SM's memory as shared
// memory, since an SM that changes the division waits until it is idle.
#pragma once

#include <utility>

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_device.h"

namespace mt::kernels::cuda {

// In the first kernel, once its block has little left to do: the next kernel may be set up when all
// blocks have called this or ended.
__device__ __forceinline__ void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// In the second kernel, before it touches memory: until the first one has ended and its writes are
// seen.
__device__ __forceinline__ void WaitForKernelBefore() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

template <class Kernel>
void PreferShared(Kernel kernel) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
}

// Launches `kernel`, which calls WaitForKernelBefore.
template <class... Params, class... Args>
void LaunchDependent(const Stream& stream, void (*kernel)(Params...), dim3 grid, dim3 threads,
                     Args&&... args) {
  const CudaStream& cuda_stream = CudaStreamOf(stream);
  int major = 0;
  CUDA_CHECK(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda_stream.ordinal()));
  PreferShared(kernel);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.stream = cuda_stream.raw();
  config.attrs = &early;
  config.numAttrs = major >= 9 ? 1 : 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

}  // namespace mt::kernels::cuda
