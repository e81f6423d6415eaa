// Waits until the memory of a GPU is free after its ranks have ended (control-plane P4), because a
// driver can keep the memory of a dead process for seconds, and a broken one for ever. Until then
// the allocation is not reported gone; after a minute it is, and the slot is out of order until a
// probe finds the memory free. Probes only while something is waited for or out of order. Loop
// thread only; no call blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/control/numbers.h"
#include "worker/node/gpus/gpu_offer.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/loop/event_loop.h"

namespace mt::node {

// Defaults come from the one table of numbers (common/control/numbers.h); tests replace them.
struct GpuLimits {
  // P4: a GPU whose memory is not free this long after its ranks have ended is out of order. It is
  // probed at the first interval until then, and at the second from then on.
  std::chrono::milliseconds device_free = control::kDeviceFreeAfterExit;
  std::chrono::milliseconds device_probe = control::kDeviceProbeInterval;
  std::chrono::milliseconds device_probe_out_of_order{10'000};
};

class GpuGuard {
 public:
  struct Deps {
    EventLoop* loop;
    const base::Clock* clock;
    GpuProbe* probe;  // may be null if no GPU is offered
    GpuLimits limits;
    std::function<void()> changed;  // OutOfOrder has changed for some GPU
  };
  // What a GPU holds now counts as its idle share: the driver's own memory, and that of other users
  // on a shared host.
  GpuGuard(Deps deps, const std::vector<GpuSlot>& gpus);
  ~GpuGuard();
  GpuGuard(const GpuGuard&) = delete;
  GpuGuard& operator=(const GpuGuard&) = delete;

  // A rank of an earlier agent runs on this GPU, so what it holds now is not its idle share; 1 GiB
  // is assumed instead. Call before the loop runs.
  void Occupied(const std::string& uuid);
  // Calls `done` once, on the loop, when the memory of these GPUs is free or the time is over, in
  // which case they are out of order. GPUs that this agent does not offer are ignored.
  void AwaitFree(const std::vector<std::string>& uuids, std::function<void()> done);
  // The agent stops: nothing is probed or waited for any more.
  void Finish();

  // Why no rank may be placed on this GPU; empty: it is in order, or not offered.
  std::string OutOfOrder(const std::string& uuid) const;

 private:
  struct Gpu {
    int64_t idle_bytes = 0;  // held by others than this agent's ranks
    std::string out_of_order;
  };
  struct Waiter {
    std::set<std::string> uuids;
    base::MonotonicTime until;
    std::function<void()> done;
  };

  void Look();
  void OnProbed(const StatusOr<GpuInventory>& found);
  // Why the memory of this GPU does not count as free; empty: it does.
  std::string WhyNotFree(const std::string& uuid, const StatusOr<GpuInventory>& found) const;
  void SettleWaiters(const StatusOr<GpuInventory>& found);
  void Schedule();

  const Deps deps_;
  std::map<std::string, Gpu> gpus_;
  std::vector<Waiter> waiters_;
  bool looking_ = false;
  bool finished_ = false;
  EventLoop::TimerId timer_ = EventLoop::kNoTimer;
};

}  // namespace mt::node
