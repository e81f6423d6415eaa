// Errors of cuBLASLt and cuDNN as DeviceError, or DeviceMemoryError if memory was refused; like
// cuda_check.h, whose rules apply.
#pragma once

#include <string_view>

#include <cublasLt.h>
#include <cudnn.h>

namespace mt::kernels::cuda {

[[noreturn]] void ThrowCublasError(cublasStatus_t status, std::string_view what);
[[noreturn]] void ThrowCudnnError(cudnnStatus_t status, std::string_view what);

}  // namespace mt::kernels::cuda

#define CUBLAS_CHECK(call)                                     \
  do {                                                         \
    const cublasStatus_t mt_status = (call);                   \
    if (mt_status != CUBLAS_STATUS_SUCCESS)                    \
      ::mt::kernels::cuda::ThrowCublasError(mt_status, #call); \
  } while (0)
#define CUDNN_CHECK(call)                                                                          \
  do {                                                                                             \
    const cudnnStatus_t mt_status = (call);                                                        \
    if (mt_status != CUDNN_STATUS_SUCCESS) ::mt::kernels::cuda::ThrowCudnnError(mt_status, #call); \
  } while (0)
