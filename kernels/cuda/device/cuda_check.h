// Errors of the CUDA runtime as DeviceError. Nothing local can recover from them (most are sticky),
// so they end the rank with a message that names the call. Every kernel launch is followed by
// CheckLaunch(op), which reports errors of the launch itself; errors inside a kernel surface at the
// next call that synchronises.
#pragma once

#include <cstdint>
#include <string_view>

#include <cuda_runtime_api.h>

namespace mt::kernels::cuda {

// Throws DeviceError (DeviceMemoryError for cudaErrorMemoryAllocation) with the device, `what` and
// CUDA's text.
[[noreturn]] void ThrowCudaError(cudaError_t status, std::string_view what);

// Throws DeviceMemoryError for a buffer of `bytes` on this GPU, with what is free there.
[[noreturn]] void ThrowNoRoom(int ordinal, int64_t bytes);

// Throws if the preceding kernel launch failed. `op` is the op's name.
inline void CheckLaunch(std::string_view op) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) ThrowCudaError(status, op);
}

}  // namespace mt::kernels::cuda

#define CUDA_CHECK(call)                                                                 \
  do {                                                                                   \
    const cudaError_t mt_status = (call);                                                \
    if (mt_status != cudaSuccess) ::mt::kernels::cuda::ThrowCudaError(mt_status, #call); \
  } while (0)
