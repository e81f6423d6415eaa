// The versions asked for are those whose prototypes cuda.h declares under these names.
#include "kernels/cuda/device/driver.h"

#include <string>

#include <cuda_runtime_api.h>

#include "kernels/core/device.h"
#include "kernels/cuda/device/cuda_check.h"

namespace mt::kernels::cuda {
namespace {

template <class Function>
void Find(const char* name, Function* out) {
  constexpr unsigned int kVersion = 12000;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &entry, kVersion, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    throw DeviceError(std::string("the driver has no ") + name + ": it is too old");
  }
  *out = reinterpret_cast<Function>(entry);
}

DriverFunctions FindAll() {
  DriverFunctions functions;
  Find("cuStreamWriteValue32", &functions.stream_write_value);
  Find("cuStreamWaitValue32", &functions.stream_wait_value);
  Find("cuTensorMapEncodeTiled", &functions.tensor_map_encode_tiled);
  Find("cuMemGetAddressRange", &functions.mem_get_address_range);
  return functions;
}

}  // namespace

const DriverFunctions& Driver() {
  static const DriverFunctions functions = FindAll();
  return functions;
}

}  // namespace mt::kernels::cuda
