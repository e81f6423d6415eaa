// Functions of the CUDA driver that the runtime has no form of, asked for through the runtime: the
// module does not link the driver.
#pragma once

#include <cuda.h>

namespace mt::kernels::cuda {

struct DriverFunctions {
  decltype(&::cuStreamWriteValue32) stream_write_value = nullptr;
  decltype(&::cuStreamWaitValue32) stream_wait_value = nullptr;
  decltype(&::cuTensorMapEncodeTiled) tensor_map_encode_tiled = nullptr;
  decltype(&::cuMemGetAddressRange) mem_get_address_range = nullptr;
};

// Looked up once; thread-safe. Throws DeviceError if the driver lacks one.
const DriverFunctions& Driver();

}  // namespace mt::kernels::cuda
