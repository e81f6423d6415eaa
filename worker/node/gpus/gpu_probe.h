// Looks at the node's GPUs, without touching them: probe_process.h does it through mt-gpu-probe,
// tests by hand. Loop thread only.
#pragma once

#include <functional>

#include "common/base/status.h"
#include "worker/node/probe/inventory.h"

namespace mt::node {

class GpuProbe {
 public:
  using Done = std::function<void(const StatusOr<GpuInventory>&)>;

  virtual ~GpuProbe() = default;
  // `done` follows exactly once, within a deadline, never from inside. kNotFound: no driver here;
  // kUnavailable: a driver that does not work; kDeadlineExceeded: one that does not answer.
  virtual void Probe(Done done) = 0;
};

}  // namespace mt::node
