// One moment at which a wall time was believed, and monotonic time from there.
#include "daemon/membership/wall_trust.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/control/numbers.h"

namespace mt::daemon {
namespace {

using std::chrono::microseconds;

base::WallTime FromUnixMicros(int64_t us) {
  return base::WallTime(std::chrono::duration_cast<base::WallTime::duration>(microseconds(us)));
}

bool AreNear(base::WallTime a, base::WallTime b) {
  return (a > b ? a - b : b - a) <= control::kWallJump;
}

}  // namespace

WallTrust::WallTrust(const base::Clock* clock)
    : clock_(clock), since_(clock->Now()), wall_(clock->WallNow()) {}

std::string WallTrust::Start(const Recorded& last) {
  since_ = clock_->Now();
  wall_ = clock_->WallNow();
  if (last.wall_us == 0) return "";
  const base::BootTime boot = clock_->Boot();
  const bool same_boot = !boot.id.empty() && boot.id == last.boot.id;
  base::WallTime expected = FromUnixMicros(last.wall_us);
  if (same_boot && boot.since > last.boot.since) expected += boot.since - last.boot.since;
  if (AreNear(wall_, expected)) return "";
  const base::WallTime said = wall_;
  doubted_ = true;
  wall_ = expected;
  const auto hours = std::chrono::duration_cast<std::chrono::hours>(said - expected).count();
  return fmt::format("the wall clock says {}, {} h {} what this store recorded last ({}{})",
                     base::FormatUtc(base::ToUnixMicros(said)), std::abs(hours),
                     hours < 0 ? "before" : "after", base::FormatUtc(last.wall_us),
                     same_boot ? ", and the time since the boot confirms it" : "");
}

std::optional<microseconds> WallTrust::Tick() {
  if (!doubted_) return std::nullopt;
  const base::WallTime said = clock_->WallNow();
  const base::WallTime reckoned = Reckoned();
  const bool is_over = clock_->Now() - since_ >= control::kWallDoubt;
  if (!is_over && !AreNear(said, reckoned)) return std::nullopt;
  doubted_ = false;
  since_ = clock_->Now();
  wall_ = said;
  return std::chrono::duration_cast<microseconds>(said - reckoned);
}

base::WallTime WallTrust::Reckoned() const {
  return wall_ + std::chrono::duration_cast<base::WallTime::duration>(clock_->Now() - since_);
}

base::WallTime WallTrust::Now() const {
  return doubted_ ? Reckoned() : std::min(clock_->WallNow(), Reckoned());
}

}  // namespace mt::daemon
