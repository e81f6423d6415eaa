// Turns once a second on the event loop, and shows by it that the loop works: sets the agent's own
// metrics, the probes' state, and what the service manager sees (watchdog, status line). Loop
// thread only.
#pragma once

#include <functional>
#include <string>

#include "common/base/notify.h"
#include "worker/node/agent/agent.h"
#include "worker/node/agent/health.h"
#include "worker/node/agent/worker_metrics.h"
#include "worker/node/loop/event_loop.h"

namespace mt::node {

class Pulse {
 public:
  struct Parts {
    EventLoop* loop;
    const Agent* agent;
    WorkerMetrics* metrics;
    Health* health;
    base::Notifier* notifier;
  };
  explicit Pulse(const Parts& parts) : parts_(parts) {}
  ~Pulse() { parts_.loop->Cancel(timer_); }
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // The first turn, with which the service is ready; then by timer.
  void Start();

 private:
  void Turn();
  std::string StatusLine() const;

  const Parts parts_;
  std::string last_status_;
  EventLoop::TimerId timer_ = EventLoop::kNoTimer;
};

}  // namespace mt::node
