// Functions of the CUDA driver that the runtime has no form of, asked for through the runtime: the
// module does not link the driver.
#pragma once

#include <string>

#include <cuda.h>

namespace mt::kernels::cuda {

struct DriverFunctions {
  decltype(&::cuStreamWriteValue32) stream_write_value = nullptr;
  decltype(&::cuStreamWaitValue32) stream_wait_value = nullptr;
  decltype(&::cuTensorMapEncodeTiled) tensor_map_encode_tiled = nullptr;
  decltype(&::cuGetErrorName) get_error_name = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&::cuMemCreate) mem_create = nullptr;
  decltype(&::cuMemRelease) mem_release = nullptr;
  decltype(&::cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&::cuMemAddressFree) mem_address_free = nullptr;
  decltype(&::cuMemMap) mem_map = nullptr;
  decltype(&::cuMemUnmap) mem_unmap = nullptr;
  decltype(&::cuMemSetAccess) mem_set_access = nullptr;
  decltype(&::cuMemExportToShareableHandle) mem_export = nullptr;
  decltype(&::cuMemImportFromShareableHandle) mem_import = nullptr;
};

// Looked up once; thread-safe. Throws DeviceError if the driver lacks one.
const DriverFunctions& Driver();

// "cuMemCreate: CUDA_ERROR_NOT_PERMITTED (800)".
std::string TextOf(const char* call, CUresult status);

}  // namespace mt::kernels::cuda
