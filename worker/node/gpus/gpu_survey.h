// Probes the node's GPUs at an interval for those that this worker could offer but does not: one
// that appeared after its start (a driver that was loaded late, hot plug), or one that was broken
// or in MIG mode and is in order again. Slots are fixed for an agent's life, so it only says that a
// restart would offer them. Loop thread only; no call blocks.
#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <string>

#include "common/base/status.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/loop/event_loop.h"

namespace mt::node {

class GpuSurvey {
 public:
  struct Deps {
    EventLoop* loop;
    GpuProbe* probe;                 // null: nothing is probed
    std::string wanted;              // --gpus
    std::function<Status()> module;  // OK if ranks find the CUDA module; null: they do
    std::set<std::string> offered;   // UUIDs of the GPUs that are slots
    std::chrono::milliseconds interval;
    std::function<void()> changed;  // news() has changed
  };
  explicit GpuSurvey(Deps deps);
  ~GpuSurvey();
  GpuSurvey(const GpuSurvey&) = delete;
  GpuSurvey& operator=(const GpuSurvey&) = delete;

  // Probes for the first time after one interval, because the worker has just done so itself.
  void Start();
  // Probes no more; the result of a running probe is ignored.
  void Finish();
  // "GPU-1, GPU-2 can be used now, but not when ..."; empty: there are none.
  const std::string& news() const { return news_; }

 private:
  void Look();
  void OnProbed(const StatusOr<GpuInventory>& found);

  const Deps deps_;
  bool finished_ = false;
  std::string news_;
  EventLoop::TimerId timer_ = EventLoop::kNoTimer;
};

}  // namespace mt::node
