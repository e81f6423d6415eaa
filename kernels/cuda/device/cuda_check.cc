// Messages of errors of the CUDA runtime, cuBLASLt and cuDNN, in one place so that all of them name
// the device and the failed call.
#include "kernels/cuda/device/cuda_check.h"

#include <fmt/format.h>

#include "kernels/core/device.h"
#include "kernels/cuda/device/library_check.h"

namespace mt::kernels::cuda {

namespace {

std::string NameOf(cudaError_t status) {
  return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

[[noreturn]] void Throw(std::string_view what, const std::string& why, bool of_memory) {
  int device = -1;
  cudaGetDevice(&device);
  const std::string text = fmt::format("cuda device {}: {}: {}", device, what, why);
  if (of_memory) throw DeviceMemoryError(text);
  throw DeviceError(text);
}

// Returns a library's own status, followed by CUDA's error if an earlier kernel has corrupted the
// context: a library that meets such a context first reports only that it could not run. The query
// does not block.
std::string WithCudasOwn(std::string_view status) {
  const cudaError_t own = cudaStreamQuery(cudaStreamLegacy);
  if (own == cudaSuccess || own == cudaErrorNotReady) return std::string(status);
  return fmt::format("{}: {}", status, NameOf(own));
}

}  // namespace

void ThrowCudaError(cudaError_t status, std::string_view what) {
  Throw(what, NameOf(status), status == cudaErrorMemoryAllocation);
}

void ThrowNoRoom(int ordinal, int64_t bytes) {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  throw DeviceMemoryError(
      fmt::format("cuda device {}: no memory for a buffer of {} bytes; {} of {} bytes are free",
                  ordinal, bytes, free, total));
}

void ThrowCublasError(cublasStatus_t status, std::string_view what) {
  Throw(what, WithCudasOwn(cublasLtGetStatusString(status)), status == CUBLAS_STATUS_ALLOC_FAILED);
}

void ThrowCudnnError(cudnnStatus_t status, std::string_view what) {
  Throw(what, WithCudasOwn(cudnnGetErrorString(status)),
        status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
            status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
}

}  // namespace mt::kernels::cuda
