// Physical memory of a GPU, mapped into addresses of this process by CUDA's virtual memory
// management: what can be exported by a file descriptor, and what such a descriptor brings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <cuda.h>

namespace mt::kernels::cuda {

// What this process has of memory that it, or another one, has created.
class MappedMemory {
 public:
  struct Refusal {
    CUresult status = CUDA_SUCCESS;
    std::string text;  // the call's name and the driver's answer
  };
  // Maps all `bytes` of `handle`, a multiple of the granularity, for GPU `ordinal` to read and
  // write. Owns the handle from now on. nullptr where the driver refuses a call; then nothing waits
  // for the device.
  static std::unique_ptr<MappedMemory> Map(int ordinal, CUmemGenericAllocationHandle handle,
                                           int64_t bytes, Refusal* refusal);
  // Waits for all that the device was given, so that whatever waits there for a peer must come to
  // an end by itself; then unmaps. The memory lives while any process has it.
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  void* data() const;
  int64_t bytes() const { return bytes_; }
  CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  MappedMemory(int ordinal, CUmemGenericAllocationHandle handle, int64_t bytes)
      : ordinal_(ordinal), handle_(handle), bytes_(bytes) {}
  Refusal MapAll();

  const int ordinal_;
  const CUmemGenericAllocationHandle handle_;
  const int64_t bytes_;
  CUdeviceptr at_ = 0;  // 0: no addresses
  bool is_mapped_ = false, is_accessible_ = false;
};

}  // namespace mt::kernels::cuda
