#include "kernels/cuda/cuda_check.h"

#include <fmt/format.h>

#include "kernels/core/device.h"
#include "kernels/cuda/library_check.h"

namespace mt::kernels::cuda {

void ThrowCudaError(cudaError_t status, std::string_view what) {
  int device = -1;
  cudaGetDevice(&device);
  const std::string text = fmt::format("cuda device {}: {}: {} ({})", device, what,
                                       cudaGetErrorString(status), cudaGetErrorName(status));
  if (status == cudaErrorMemoryAllocation) throw DeviceMemoryError(text);
  throw DeviceError(text);
}

void ThrowCublasError(cublasStatus_t status, std::string_view what) {
  throw DeviceError(fmt::format("cublas: {}: {}", what, cublasLtGetStatusString(status)));
}

void ThrowCudnnError(cudnnStatus_t status, std::string_view what) {
  throw DeviceError(fmt::format("cudnn: {}: {}", what, cudnnGetErrorString(status)));
}

}  // namespace mt::kernels::cuda
