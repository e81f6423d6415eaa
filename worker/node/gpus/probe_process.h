// GpuProbe by mt-gpu-probe: a process per look, whose output is a file in memory and whose end is
// seen by a pidfd, so that a driver that hangs it hangs nothing here. One that cannot be ended
// (it sleeps in the driver) is left alone, and no other is started beside it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/base/files.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/loop/asio_event_loop.h"

namespace mt::node {

// Statuses as of GpuProbe, and kInternal where the program does not run. Blocking, at most
// `deadline` and a second.
StatusOr<GpuInventory> ProbeNow(const std::string& binary, std::chrono::milliseconds deadline);

class ProbeProcess final : public GpuProbe {
 public:
  ProbeProcess(AsioEventLoop* loop, std::string binary, std::chrono::milliseconds deadline);
  ~ProbeProcess() override;  // the loop no longer runs

  void Probe(Done done) override;

 private:
  struct Run;

  void OnEnded(const std::shared_ptr<Run>& run);
  void OnDeadline(const std::shared_ptr<Run>& run);

  AsioEventLoop* loop_;
  const std::string binary_;
  const std::chrono::milliseconds deadline_;
  std::shared_ptr<Run> running_;  // also one that was given up but has not ended
};

}  // namespace mt::node
