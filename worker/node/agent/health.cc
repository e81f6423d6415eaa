// Atomic values and a text, so that a probe never waits for the loop.
#include "worker/node/agent/health.h"

#include <fmt/format.h>

namespace mt::node {

void Health::Turn(bool registered, const std::string& refusal) {
  last_turn_ = clock_->Now();
  registered_ = registered;
  const base::MutexLock lock(&mu_);
  refusal_ = refusal;
}

http::Response Health::Live() const {
  const auto silent =
      std::chrono::duration_cast<std::chrono::seconds>(clock_->Now() - last_turn_.load());
  if (silent <= kStuckAfter) return {.body = "ok\n"};
  return {.status = 503,
          .body = fmt::format("the event loop has not turned for {} s\n", silent.count())};
}

http::Response Health::Ready() const {
  http::Response live = Live();
  if (live.status != 200) return live;
  if (registered_) return {.body = "ok\n"};
  const base::MutexLock lock(&mu_);
  return {.status = 503,
          .body = fmt::format("not registered with the coordinator{}{}\n",
                              refusal_.empty() ? "" : ": ", refusal_)};
}

}  // namespace mt::node
