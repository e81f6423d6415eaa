// Runs once a second on the event loop: updates the agent's own metrics and the state of the
// probes, and notifies the service manager (watchdog, status line), which shows that the loop
// turns. Loop thread only.
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

  // Tells the service manager that the service is ready and runs for the first time; then by timer.
  void Start();

 private:
  void Turn();
  std::string StatusLine() const;

  const Parts parts_;
  std::string last_status_;
  EventLoop::TimerId timer_ = EventLoop::kNoTimer;
};

}  // namespace mt::node
