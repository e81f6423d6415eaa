// The versions asked for are those whose prototypes cuda.h declares under these names.
#include "kernels/cuda/device/driver.h"

#include <string>

#include <cuda_runtime_api.h>

#include <fmt/format.h>

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
  Find("cuGetErrorName", &functions.get_error_name);
  Find("cuDeviceGetAttribute", &functions.device_get_attribute);
  Find("cuMemGetAllocationGranularity", &functions.mem_get_allocation_granularity);
  Find("cuMemCreate", &functions.mem_create);
  Find("cuMemRelease", &functions.mem_release);
  Find("cuMemAddressReserve", &functions.mem_address_reserve);
  Find("cuMemAddressFree", &functions.mem_address_free);
  Find("cuMemMap", &functions.mem_map);
  Find("cuMemUnmap", &functions.mem_unmap);
  Find("cuMemSetAccess", &functions.mem_set_access);
  Find("cuMemExportToShareableHandle", &functions.mem_export);
  Find("cuMemImportFromShareableHandle", &functions.mem_import);
  return functions;
}

}  // namespace

const DriverFunctions& Driver() {
  static const DriverFunctions functions = FindAll();
  return functions;
}

std::string TextOf(const char* call, CUresult status) {
  const char* name = nullptr;
  Driver().get_error_name(status, &name);  // leaves nullptr for what it does not know
  return fmt::format("{}: {} ({})", call, name == nullptr ? "error" : name,
                     static_cast<int>(status));
}

}  // namespace mt::kernels::cuda
