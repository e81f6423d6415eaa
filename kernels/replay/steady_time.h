// How long a piece of device work takes when it is done again and again.
#pragma once

#include <functional>

#include "kernels/core/device.h"

namespace mt::kernels::replay {

// Median over five batches that take about `seconds` together, of the time of one `round`, which
// enqueues work on `stream`. Where the device has recordings, rounds are recorded and launched from
// there, so that the host's part vanishes; `calls` says how many launches a round makes, about.
// Blocks; the stream is idle afterwards.
double MedianSeconds(Device& device, Stream& stream, int calls, double seconds,
                     const std::function<void()>& round);

}  // namespace mt::kernels::replay
