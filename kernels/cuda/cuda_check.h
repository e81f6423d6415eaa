// Errors of CUDA's runtime as DeviceError: nothing local can recover from them
// (most are sticky), so they end the rank with a message that names the call. Kernels are followed
// by CheckLaunch(op), which sees faults of the launch itself; faults inside a kernel surface at the
// next call that waits.
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

namespace mt::kernels::cuda {

[[noreturn]] void ThrowCudaError(cudaError_t status, std::string_view what);

// Throws if the launch before it failed. `op` is the op's name.
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
