// Addresses, a mapping of the memory there, access for one GPU; undone in the opposite order.
#include "kernels/cuda/device/mapped_memory.h"

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/driver.h"

namespace mt::kernels::cuda {

std::unique_ptr<MappedMemory> MappedMemory::Map(int ordinal, CUmemGenericAllocationHandle handle,
                                                int64_t bytes, Refusal* refusal) {
  std::unique_ptr<MappedMemory> memory(new MappedMemory(ordinal, handle, bytes));
  *refusal = memory->MapAll();
  if (refusal->status != CUDA_SUCCESS) memory.reset();
  return memory;
}

MappedMemory::Refusal MappedMemory::MapAll() {
  const auto answer = [](const char* call, CUresult status) {
    return Refusal{.status = status, .text = TextOf(call, status)};
  };
  const auto size = static_cast<size_t>(bytes_);
  CUresult status = Driver().mem_address_reserve(&at_, size, 0, 0, 0);
  if (status != CUDA_SUCCESS) return answer("cuMemAddressReserve", status);
  status = Driver().mem_map(at_, size, 0, handle_, 0);
  if (status != CUDA_SUCCESS) return answer("cuMemMap", status);
  is_mapped_ = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal_;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  status = Driver().mem_set_access(at_, size, &access, 1);
  if (status != CUDA_SUCCESS) return answer("cuMemSetAccess", status);
  is_accessible_ = true;
  return {};
}

// Failures mean that the context is gone, and with it what it had. Where access was refused nobody
// has used the memory, and the device may be waiting for what this thread has yet to do.
MappedMemory::~MappedMemory() {
  if (is_accessible_) {
    try {
      BindDevice(ordinal_);
      cudaDeviceSynchronize();
    } catch (const DeviceError&) {  // it waits for nothing any more
    }
  }
  if (is_mapped_) Driver().mem_unmap(at_, static_cast<size_t>(bytes_));
  if (at_ != 0) Driver().mem_address_free(at_, static_cast<size_t>(bytes_));
  Driver().mem_release(handle_);
}

// NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are integers
void* MappedMemory::data() const { return reinterpret_cast<void*>(at_); }

}  // namespace mt::kernels::cuda
