// Two atomic values, so that a probe never waits for the loop.
#include "worker/node/agent/health.h"

#include <fmt/format.h>

namespace mt::node {

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
  return {.status = 503, .body = "not registered with the coordinator\n"};
}

}  // namespace mt::node
