// A root without an identity is logged once for each reason.
#include "worker/node/agent/root_watch.h"

#include <pthread.h>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "worker/checkpoint/format/root_marker.h"

namespace mt::node {
namespace {

// Jobs that save cannot start on a node without its root; without an identity it cannot be told
// whether it is the one in which a job has saved.
void Tell(const std::string& root, const Status& status) {
  const std::string why = base::Message(status);
  if (absl::IsNotFound(status)) {
    log::Warn("the checkpoint root is missing: mount it, or make the folder where it is a new one",
              {{"root", root}, {"why", why}});
  } else {
    log::Warn("the checkpoint root has no identity", {{"root", root}, {"why", why}});
  }
}

}  // namespace

struct RootWatch::State {
  explicit State(Config given) : config(std::move(given)) {}

  // One look; the thread alone.
  std::string Look() {
    const auto marker = checkpoint::EnsureRootMarker(config.root, config.node);
    const std::string why = marker.ok() ? "" : base::Message(marker.status());
    if (why != told) {
      if (marker.ok()) {
        log::Info("the checkpoint root has an identity",
                  {{"root", config.root}, {"id", marker->id}});
      } else {
        Tell(config.root, marker.status());
      }
      told = why;
    }
    return marker.ok() ? marker->id : "";
  }

  void Loop() {
    ::pthread_setname_np(::pthread_self(), "mt-root");
    base::MutexLock lock(&mu);
    while (!stopping) {
      mu.Unlock();
      std::string found = Look();
      mu.Lock();
      const bool tell = looked && found != id && config.changed != nullptr;
      id = std::move(found);
      looked = true;
      changed.NotifyAll();
      if (tell) {
        mu.Unlock();
        config.changed();
        mu.Lock();
      }
      const auto next = base::Clock::Real()->Now() + (id.empty() ? config.search : config.interval);
      while (!stopping && base::Clock::Real()->Now() < next) changed.WaitUntil(&mu, next);
    }
  }

  const Config config;
  std::string told = "not looked at";  // the reason in the log; the thread alone
  mutable base::Mutex mu;
  base::CondVar changed;
  std::string id GUARDED_BY(mu);
  bool looked GUARDED_BY(mu) = false;
  bool stopping GUARDED_BY(mu) = false;
  std::thread thread;
};

RootWatch::RootWatch(Config config) : state_(std::make_unique<State>(std::move(config))) {
  State& state = *state_;
  state.thread = std::thread([&state] { state.Loop(); });
  const auto limit = base::Clock::Real()->Now() + state.config.first_look;
  base::MutexLock lock(&state.mu);
  while (!state.looked && base::Clock::Real()->Now() < limit)
    state.changed.WaitUntil(&state.mu, limit);
}

RootWatch::~RootWatch() {
  {
    base::MutexLock lock(&state_->mu);
    state_->stopping = true;
    state_->changed.NotifyAll();
  }
  state_->thread.join();
}

std::string RootWatch::id() const {
  base::MutexLock lock(&state_->mu);
  return state_->id;
}

}  // namespace mt::node
