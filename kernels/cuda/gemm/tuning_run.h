// Times alternatives of device work against each other: random operands, and races in which the
// contenders take turns on a busy device, so that drifting power and clocks affect all of them
// alike.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/core/tensor.h"
#include "kernels/cuda/device/cuda_device.h"

namespace mt::kernels::cuda {

// Device buffers with random contents and a stream to run on; it owns both. Used by one thread.
// Errors are DeviceError.
class TuningRun {
 public:
  explicit TuningRun(const DeviceLimits& limits);
  // Returns device memory for `elements` elements of `dtype`, filled with normally distributed
  // numbers; owned by this object.
  void* Random(DType dtype, int64_t elements, double std = 1);
  Stream& stream() { return stream_; }

  // Enqueues the contender's work once on stream(). `turn` counts its calls, so that each can use
  // another set of operands.
  using Contender = std::function<void(int turn)>;
  struct Length {
    int rounds = 1;
    double burst_us = 0;  // a turn repeats its work for about this long
    double lead_us = 0;   // untimed turns first, to heat up the device
  };
  // Returns the median microseconds of one call of each contender. Contenders take short turns
  // without a pause, each round starting with another one, so that all run at the same clocks, as
  // the kernels of a step do. Blocks until done.
  std::vector<double> Race(const std::vector<Contender>& contenders, const Length& length);

 private:
  class Marks;

  CudaDevice device_;
  CudaStream stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

}  // namespace mt::kernels::cuda
