// Timing pieces of device work against each other: random operands, and races in which contenders
// take turns on a busy device, so that drifting power and clocks hit all alike.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/core/tensor.h"
#include "kernels/cuda/cuda_device.h"

namespace mt::kernels::cuda {

// Buffers with random contents and a stream of their own; freed with it. One thread.
class TuningRun {
 public:
  explicit TuningRun(const DeviceLimits& limits);
  // [elements] of `dtype`, normal numbers.
  void* Random(DType dtype, int64_t elements, double std = 1);
  Stream& stream() { return stream_; }

  // Enqueues the contender's work once on stream(). `turn` counts its calls, so that it can take
  // another set of operands each time.
  using Contender = std::function<void(int turn)>;
  struct Length {
    int rounds = 1;
    double burst_us = 0;  // each turn repeats its work until about this long
    double lead_us = 0;   // turns before anything counts, for the device to get hot
  };
  // Median microseconds of one call of each. Contenders take turns, each round from another one on,
  // enqueued without a pause: short turns, so that all meet the same clocks, as kernels of a step
  // do.
  std::vector<double> Race(const std::vector<Contender>& contenders, const Length& length);

 private:
  class Marks;

  CudaDevice device_;
  CudaStream stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

}  // namespace mt::kernels::cuda
