// Looks at the node's GPUs now and then, for those that this worker could offer but does not: one
// that came after its start (a driver that was loaded late, hot plug), or one that was sick or in
// MIG mode and is in order now. Slots are fixed for an agent's life, so all it does is say that a
// restart would offer them. Loop thread only.
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
    GpuProbe* probe;                 // null: nothing is looked at
    std::string wanted;              // --gpus
    std::function<Status()> module;  // the CUDA module; null: it is there
    std::set<std::string> offered;   // UUIDs
    std::chrono::milliseconds interval;
    std::function<void()> changed;  // news() says something else now
  };
  explicit GpuSurvey(Deps deps);
  ~GpuSurvey();
  GpuSurvey(const GpuSurvey&) = delete;
  GpuSurvey& operator=(const GpuSurvey&) = delete;

  // The first look follows after an interval: the worker has just looked.
  void Start();
  // No look from now on; of one that is under way nothing is heard.
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
