// The limit of a training rank follows the p99 of its newest steps, so that slow jobs are not
// reported.
#include "worker/node/ranks/progress_watch.h"

#include <algorithm>
#include <cmath>

#include "common/report/step_phase.h"
#include "megatrain/v1/rank.pb.h"

namespace mt::node {
namespace {

using megatrain::v1::RankState;

constexpr size_t kKeptSteps = 512;

}  // namespace

ProgressWatch::ProgressWatch(const ProgressLimits& limits, base::MonotonicTime now)
    : limits_(limits), state_(RankState::SPAWNED), moved_(now) {}

void ProgressWatch::OnState(RankState state, base::MonotonicTime now) {
  state_ = state;
  moved_ = now;
}

void ProgressWatch::OnBeat(const megatrain::v1::RankBeat& beat, base::MonotonicTime now) {
  last_beat_ = now;
  if (beat.progress() != progress_ || beat.mark().text() != mark_) moved_ = now;
  progress_ = beat.progress();
  mark_ = beat.mark().text();
  saving_ = beat.mark().phase() == report::Name(report::StepPhase::kCheckpoint);
  for (const double seconds : beat.telemetry().recent_step_seconds()) {
    if (!std::isfinite(seconds) || seconds < 0) continue;  // values of a rank are not trusted
    if (step_seconds_.size() < kKeptSteps) {
      step_seconds_.push_back(seconds);
    } else {
      step_seconds_[static_cast<size_t>(num_steps_) % kKeptSteps] = seconds;
    }
    ++num_steps_;
  }
}

double ProgressWatch::StepSecondsP99() const {
  if (step_seconds_.empty()) return 0;
  std::vector<double> sorted = step_seconds_;
  const size_t at = (sorted.size() * 99 - 1) / 100;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at), sorted.end());
  return sorted[at];
}

std::optional<std::chrono::milliseconds> ProgressWatch::Limit() const {
  using std::chrono::milliseconds;
  switch (state_) {
    case RankState::SPAWNED:
    case RankState::CONNECTED:
    case RankState::COMM_INIT:
      return limits_.comm_init;
    case RankState::LOADING:
    case RankState::READY:  // other ranks may still load
      return limits_.load;
    case RankState::TRAINING: {
      const double p99 = std::min(StepSecondsP99(), 1e9);  // keeps the product in range of int64_t
      const milliseconds by_steps(static_cast<int64_t>(control::kStepLimitFactor * p99 * 1e3));
      milliseconds limit = std::max(limits_.step, by_steps);
      if (num_steps_ < control::kFirstSteps) limit = std::max(limit, limits_.first_steps);
      return saving_ ? std::max(limit, limits_.save) : limit;
    }
    default:
      return std::nullopt;
  }
}

std::optional<ProgressWatch::Stall> ProgressWatch::Look(base::MonotonicTime now) const {
  const auto limit = Limit();
  const auto silent_from = SilentFrom();
  const bool silent = silent_from && now >= *silent_from;
  const bool stands_still = limit && now - moved_ >= *limit;
  if (!silent && !stands_still) return std::nullopt;
  Stall stall{
      .since = moved_, .limit = stands_still ? *limit : limits_.frozen, .last_beat = std::nullopt};
  if (silent) stall.last_beat = last_beat_;
  return stall;
}

std::optional<base::MonotonicTime> ProgressWatch::SilentFrom() const {
  // A held rank has no progress to make, but it beats.
  if (!last_beat_ || (!Limit() && state_ != RankState::HELD)) return std::nullopt;
  return *last_beat_ + limits_.frozen;
}

void ProgressWatch::Forgive(base::MonotonicTime::duration stood_still) {
  moved_ += stood_still;
  if (last_beat_) *last_beat_ += stood_still;
}

}  // namespace mt::node
