// A folder that cannot be measured keeps its last value and is logged once, until it can be again.
#include "worker/node/agent/storage_watch.h"

#include <pthread.h>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/mutex.h"

namespace mt::node {

struct StorageWatch::State {
  struct Root {
    std::string path;
    metrics::Gauge free_bytes;
    bool failed = false;
  };

  void Measure() {
    for (Root& root : roots) {
      const auto free = base::FreeBytes(root.path);
      if (free.ok()) root.free_bytes.Set(static_cast<double>(*free));
      if (!free.ok() && !root.failed) {
        log::Warn("free space cannot be measured", {{"why", base::Message(free.status())}});
      }
      root.failed = !free.ok();
    }
  }

  void Loop() {
    ::pthread_setname_np(::pthread_self(), "mt-storage");
    base::MutexLock lock(&mu);
    while (!stopping) {
      mu.Unlock();
      Measure();
      mu.Lock();
      const auto next = base::Clock::Real()->Now() + interval;
      while (!stopping && base::Clock::Real()->Now() < next) changed.WaitUntil(&mu, next);
    }
  }

  std::vector<Root> roots;  // used by the thread only
  std::chrono::milliseconds interval{};
  base::Mutex mu;
  base::CondVar changed;
  bool stopping GUARDED_BY(mu) = false;
  std::thread thread;
};

StorageWatch::StorageWatch(const std::map<std::string, std::string>& roots,
                           const metrics::Labels& labels, metrics::Registry* registry,
                           std::chrono::milliseconds interval)
    : state_(std::make_unique<State>()) {
  const auto family =
      registry->AddGauge("mt_storage_free_bytes", "Free bytes below a folder of this worker.");
  for (const auto& [name, path] : roots) {
    metrics::Labels all = labels;
    all["root"] = name;
    state_->roots.push_back({.path = path, .free_bytes = family.With(all)});
  }
  state_->interval = interval;
  state_->thread = std::thread([state = state_.get()] { state->Loop(); });
}

StorageWatch::~StorageWatch() {
  {
    base::MutexLock lock(&state_->mu);
    state_->stopping = true;
    state_->changed.NotifyAll();
  }
  state_->thread.join();
}

}  // namespace mt::node
