// Each bound is a count of heartbeats, which no configuration changes.
#include "daemon/membership/silence_limits.h"

#include <string_view>

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;

double Seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

Status CheckLeast(std::string_view flag, milliseconds value, milliseconds least,
                  std::string_view why) {
  if (value >= least) return OkStatus();
  return base::InvalidArgument("{} {}: must be at least {} s, {}", flag, Seconds(value),
                               Seconds(least), why);
}

}  // namespace

Status CheckLimits(const SilenceLimits& limits) {
  const milliseconds beat = control::kHeartbeatInterval;
  RETURN_IF_ERROR(CheckLeast("--suspect-after", limits.suspect_after, 2 * beat,
                             "two heartbeats, so that one may be late"));
  RETURN_IF_ERROR(CheckLeast("--lost-after", limits.lost_after, limits.suspect_after + beat,
                             "--suspect-after and a heartbeat"));
  return CheckLeast("--phantom-after", limits.phantom_after, 2 * beat,
                    "two heartbeats, which tell what a node holds");
}

}  // namespace mt::daemon
