// Measures how long a piece of device work takes when it is repeated.
#pragma once

#include <functional>

#include "kernels/core/device.h"

namespace mt::kernels::replay {

// Returns the median, over five batches that take about `seconds` together, of the seconds of one
// `round`, which enqueues work on `stream`. If the device has recordings (CUDA graphs), rounds are
// recorded and launched from there, so that host time does not count; `calls` is the approximate
// number of kernel launches in a round. Blocks; the stream is idle afterwards.
double MedianSeconds(Device& device, Stream& stream, int calls, double seconds,
                     const std::function<void()>& round);

}  // namespace mt::kernels::replay
