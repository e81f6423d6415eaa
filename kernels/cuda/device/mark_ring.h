// Marks of one GPU stream (kernels/core/mark_ring.h); times are the GPU's %globaltimer in
// nanoseconds. Destroying a ring blocks until the device has passed its last mark.
#pragma once

#include <memory>

#include "kernels/core/mark_ring.h"
#include "kernels/cuda/device/cuda_device.h"

namespace mt::kernels::cuda {

class CudaMarkRing final : public MarkRing {
 public:
  // Rounds the capacity up to a power of two. Throws DeviceMemoryError without memory.
  static std::unique_ptr<CudaMarkRing> Create(Device& device, int64_t capacity);
  void Mark(Stream& stream) override;

 private:
  CudaMarkRing(std::unique_ptr<DeviceBuffer> slots, std::unique_ptr<DeviceBuffer> reached,
               int64_t capacity);

  const std::unique_ptr<DeviceBuffer> slots_;  // pinned: MarkSlot [capacity]
  const std::unique_ptr<DeviceBuffer>
      reached_;  // device: u64, number of the newest mark; freed first, which waits for the device
};

}  // namespace mt::kernels::cuda
