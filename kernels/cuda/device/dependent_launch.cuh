// Programmatic dependent launch (PDL; CUDA C++ Programming Guide, "Programmatic Dependent Launch
// and Synchronization"; compute capability 9.0, below that a normal launch): a kernel may be set up
// while the previous kernel in its stream ends, which hides the latency of a launch. The previous
// kernel need not cooperate; if it calls LetNextKernelBegin, blocks of the next one are scheduled
// while its last blocks still run. CUDA graphs keep this property.
//
// Ordering: every thread of such a kernel calls WaitForKernelBefore before it touches memory or
// returns (BringToL2 apart). That call returns when the previous kernel has ended and its writes
// are visible; and because that kernel did not end before its own wait, all kernels before it have
// ended as well. A library's kernel that is launched this way must wait for its own operands, which
// has the same effect. Normal launches, events and copies wait for kernels to end anyway. Waiting
// blocks do not delay other kernels: they are scheduled only when all earlier blocks are running.
#pragma once

#include <cstdint>
#include <utility>

#include <cuda_runtime.h>

#include "kernels/cuda/device/cuda_check.h"
#include "kernels/cuda/device/cuda_device.h"

namespace mt::kernels::cuda {

// Called when a block has little left to do, or at its beginning: the next kernel may be set up
// once all blocks have called this or exited. It guarantees nothing about the visibility of their
// writes.
__device__ __forceinline__ void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// The first call in every kernel that LaunchDependent launches. The kernel's pointers must not be
// __restrict__, because such loads could be moved before the wait.
__device__ __forceinline__ void WaitForKernelBefore() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Asks for `bytes` of device memory to be brought to the L2 cache; multiples of 16 both. It reads
// nothing, so it may come before WaitForKernelBefore: for what the kernel will read in any case,
// such as weights, while kernels before it still run.
__device__ __forceinline__ void BringToL2(const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
               "r"(bytes)
               : "memory");
#endif
}

// Prefers the largest shared-memory carveout for `kernel`. The second stage of a sum is as short as
// the gap before it, and an SM that changes its carveout waits until it is idle, so both stages ask
// for the same.
template <class Kernel>
void PreferShared(Kernel kernel) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
}

struct LaunchShape {
  dim3 grid, threads;
  int64_t shared_bytes = 0;  // dynamic shared memory
};

// Launches `kernel`, which must call WaitForKernelBefore; throws DeviceError if the launch fails.
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
