// How much of a step a rank's device waits for its host, from the traces of a few steps. Pure.
#pragma once

#include <optional>

namespace megatrain::v1 {
class JobTrace;
}

namespace mt::bench {

struct HostWait {
  double share = 0;  // of the steps' time, 0 to 1
  int rank = 0;
};

// The rank of whose steps the largest share was starved (docs/design/gpu-engine.md#marks), an upper
// bound of what its compute stream waited for the host. The first step of the trace does not count:
// the trace itself stops the device in front of it. nullopt: no second step was traced, or the
// device's calls block, so that its host is never ahead.
std::optional<HostWait> LargestHostWait(const megatrain::v1::JobTrace& trace);

}  // namespace mt::bench
