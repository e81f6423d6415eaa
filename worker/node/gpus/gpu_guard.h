// Whether the memory of a GPU is free once its ranks are gone (P4): a driver can keep a dead
// process' memory for seconds, and a sick one for ever. Until then its allocation is not reported
// gone; after a minute it is, and the slot is out of order until a look finds the memory free.
// Looks through GpuProbe, at nothing while nothing is waited for. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/control_numbers.h"
#include "worker/node/gpus/gpu_offer.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/loop/event_loop.h"

namespace mt::node {

// From the one table of numbers (common/rpc/control_numbers.h); tests replace them.
struct GpuLimits {
  // P4: a GPU whose memory is not free this long after its ranks' end is out of order. It is probed
  // at the first interval until then, and at the second from then on.
  std::chrono::milliseconds device_free = rpc::kDeviceFreeAfterExit;
  std::chrono::milliseconds device_probe = rpc::kDeviceProbeInterval;
  std::chrono::milliseconds device_probe_out_of_order{10'000};
};

class GpuGuard {
 public:
  struct Deps {
    EventLoop* loop;
    const base::Clock* clock;
    GpuProbe* probe;  // may be null where there are no GPUs
    GpuLimits limits;
    std::function<void()> changed;  // OutOfOrder says something else of some GPU now
  };
  // What a GPU that no rank of ours uses holds now counts as idle: the driver's own share, and
  // other users' on a shared host.
  GpuGuard(Deps deps, const std::vector<GpuSlot>& gpus);
  ~GpuGuard();
  GpuGuard(const GpuGuard&) = delete;
  GpuGuard& operator=(const GpuGuard&) = delete;

  // A rank of an earlier agent runs on it: what it holds now is not idle. Before the loop runs.
  void Occupied(const std::string& uuid);
  // Calls `done` once, on the loop, when these GPUs' memory is free or their time is over (then
  // they are out of order). GPUs that this agent does not offer are not waited for.
  void AwaitFree(const std::vector<std::string>& uuids, std::function<void()> done);
  // The agent stops: from now on nothing is waited for.
  void Finish();

  // Why nothing is to be placed on it; empty: it is in order, or not known here.
  std::string OutOfOrder(const std::string& uuid) const;

 private:
  struct Gpu {
    int64_t idle_bytes = 0;  // held by others than our ranks
    std::string out_of_order;
  };
  struct Waiter {
    std::set<std::string> uuids;
    base::MonotonicTime until;
    std::function<void()> done;
  };

  void Look();
  void OnProbed(const StatusOr<GpuInventory>& found);
  // Why its memory cannot be called free; empty: it is.
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
