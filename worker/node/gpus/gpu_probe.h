// Surveys the node's GPUs through the driver, without creating a context. Implemented by
// probe_process.h, through mt-gpu-probe, and by a fake in tests. Loop thread only; never blocks.
#pragma once

#include <functional>

#include "common/base/status.h"
#include "worker/node/probe/inventory.h"

namespace mt::node {

class GpuProbe {
 public:
  using Done = std::function<void(const StatusOr<GpuInventory>&)>;

  virtual ~GpuProbe() = default;
  // Calls `done` exactly once, within a deadline, on the loop and never from inside. kNotFound:
  // there is no driver; kUnavailable: the driver does not work; kDeadlineExceeded: it does not
  // answer.
  virtual void Probe(Done done) = 0;
};

}  // namespace mt::node
