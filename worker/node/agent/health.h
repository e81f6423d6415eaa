// The answers to Kubernetes' probes: /livez is OK while the event loop turns (and asks for nothing
// else, because restarting an agent does not bring an absent coordinator back), /readyz while the
// coordinator has this worker registered; the answer says why not where it is known. Set by the
// loop, read by the HTTP server. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/http/server.h"

namespace mt::node {

class Health {
 public:
  // The loop counts as stuck if it has not turned for this long.
  static constexpr std::chrono::seconds kStuckAfter{10};

  explicit Health(const base::Clock* clock) : clock_(clock), last_turn_(clock->Now()) {}

  // `refusal`: why the coordinator that answers is not obeyed (obedience.h).
  void Turn(bool registered, const std::string& refusal);
  http::Response Live() const;
  http::Response Ready() const;

 private:
  const base::Clock* clock_;
  std::atomic<base::MonotonicTime> last_turn_;
  std::atomic<bool> registered_ = false;
  mutable base::Mutex mu_;
  std::string refusal_ GUARDED_BY(mu_);
};

}  // namespace mt::node
