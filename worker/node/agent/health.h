// What the probes say: /livez that the event loop turns (nothing else: a coordinator that is away
// is no reason to restart an agent), /readyz that the coordinator has accepted this worker. Set by
// the loop, read by the HTTP server. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>

#include "common/base/clock.h"
#include "common/http/server.h"

namespace mt::node {

class Health {
 public:
  // The loop is taken for stuck after this.
  static constexpr std::chrono::seconds kStuckAfter{10};

  explicit Health(const base::Clock* clock) : clock_(clock), last_turn_(clock->Now()) {}

  void Turn(bool registered) {
    last_turn_ = clock_->Now();
    registered_ = registered;
  }
  http::Response Live() const;
  http::Response Ready() const;

 private:
  const base::Clock* clock_;
  std::atomic<base::MonotonicTime> last_turn_;
  std::atomic<bool> registered_ = false;
};

}  // namespace mt::node
