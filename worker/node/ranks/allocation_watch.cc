// Ranks that show no progress (allocation.h, progress_watch.h): told to the coordinator with where
// their devices stand, once when it is noticed and once when it is over. They are not ended: that
// is the operator's word, or the coordinator's.
#include <utility>

#include "common/base/log.h"
#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/types.pb.h"
#include "worker/node/ranks/allocation.h"
#include "worker/node/ranks/allocation_rank.h"

namespace mt::node {
namespace {

using megatrain::v1::RankStall;

int64_t Seconds(base::MonotonicTime from, base::MonotonicTime to) {
  return std::chrono::duration_cast<std::chrono::seconds>(to - from).count();
}

}  // namespace

ProgressLimits Allocation::LimitsOfJob() const {
  ProgressLimits limits = deps_.limits.progress;
  const auto& timeouts = assign().spec().resilience().timeouts();
  if (timeouts.has_comm_init()) limits.comm_init = std::chrono::milliseconds(timeouts.comm_init());
  if (timeouts.has_load()) limits.load = std::chrono::milliseconds(timeouts.load());
  return limits;
}

void Allocation::LookAtProgress() {
  look_timer_ = deps_.loop->After(deps_.limits.progress_look, [this] { LookAtProgress(); });
  for (const auto& rank : ranks_) LookAtProgressOf(rank.get());
}

void Allocation::LookAtProgressOf(Rank* rank) {
  if (rank->gone || aborting_ || ending_) return;
  const base::MonotonicTime now = deps_.clock->Now();
  const bool was_stalled = rank->stall.has_value();
  const auto stall = rank->watch.Look(now);
  const bool was_silent = was_stalled && rank->stall->last_beat.has_value();
  const bool is_silent = stall && stall->last_beat.has_value();
  rank->stall = stall;
  if (stall.has_value() == was_stalled && is_silent == was_silent) return;
  if (stall) {
    log::Warn("a rank shows no progress", {{"job", job_uid()},
                                           {"epoch", epoch()},
                                           {"rank", rank->rank},
                                           {"step", rank->step},
                                           {"seconds", Seconds(stall->since, now)},
                                           {"beats", !is_silent},
                                           {"device", rank->watch.mark()}});
  } else {
    log::Info("a rank goes on", {{"job", job_uid()}, {"rank", rank->rank}, {"step", rank->step}});
  }
  ReportState(*rank);
}

void Allocation::FillStall(const ProgressWatch::Stall& stall, const std::string& mark,
                           RankStall* out) const {
  const base::MonotonicTime now = deps_.clock->Now();
  const int64_t wall_us = base::ToUnixMicros(deps_.clock->WallNow());
  const auto wall_of = [&](base::MonotonicTime time) {
    return wall_us - std::chrono::duration_cast<std::chrono::microseconds>(now - time).count();
  };
  out->set_since_us(wall_of(stall.since));
  out->set_limit_ms(stall.limit.count());
  out->set_mark(mark);
  if (stall.last_beat) out->set_last_beat_us(wall_of(*stall.last_beat));
}

std::string Allocation::WhereItStood(const Rank& rank) const {
  const std::string& mark = rank.watch.mark();
  if (rank.stall) {
    return fmt::format("; it had shown no progress for {} s{}",
                       Seconds(rank.stall->since, deps_.clock->Now()),
                       mark.empty() ? "" : ", its device at " + mark);
  }
  // Of other ends the rank itself says where they came from.
  return rank.exit.signal == 0 || mark.empty() ? "" : "; device last at " + mark;
}

}  // namespace mt::node
