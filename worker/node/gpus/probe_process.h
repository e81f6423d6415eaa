// GpuProbe through mt-gpu-probe: one process per probe, which writes to a memfd and is watched by a
// pidfd, so that a driver that hangs blocks only that process. A process that cannot be killed (it
// sleeps in the driver) is left alone, and no other is started beside it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/base/files.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/loop/asio_event_loop.h"

namespace mt::node {

// Probes once. Errors are those of GpuProbe, and kInternal if the program cannot be run. Blocks, at
// most for `deadline` and a second.
StatusOr<GpuInventory> ProbeNow(const std::string& binary, std::chrono::milliseconds deadline);

class ProbeProcess final : public GpuProbe {
 public:
  ProbeProcess(AsioEventLoop* loop, std::string binary, std::chrono::milliseconds deadline);
  ~ProbeProcess() override;  // the loop must not run any more

  void Probe(Done done) override;

 private:
  struct Run;

  void OnEnded(const std::shared_ptr<Run>& run);
  void OnDeadline(const std::shared_ptr<Run>& run);

  AsioEventLoop* loop_;
  const std::string binary_;
  const std::chrono::milliseconds deadline_;
  std::shared_ptr<Run> running_;  // until its process has ended, even past the deadline
};

}  // namespace mt::node
