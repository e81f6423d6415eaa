// A ProgressWatch per rank says what stalls; here is when it is asked and what is made known.
#include "worker/node/ranks/stall_watch.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/control/epoch.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::node {
namespace {

constexpr std::chrono::seconds kOwnFreeze{2};

int64_t Seconds(base::MonotonicTime from, base::MonotonicTime to) {
  return std::chrono::duration_cast<std::chrono::seconds>(to - from).count();
}

}  // namespace

StallWatch::StallWatch(Deps deps, RankSet* ranks) : deps_(std::move(deps)), ranks_(ranks) {
  for (const LocalRank& rank : ranks_->all()) {
    watched_.try_emplace(
        rank.rank,
        Watched{.progress = ProgressWatch(deps_.limits, deps_.clock->Now()), .stall = {}});
  }
}

StallWatch::~StallWatch() { deps_.loop->Cancel(timer_); }

void StallWatch::Start() {
  if (!stopped_) Look();
}

void StallWatch::Stop() {
  stopped_ = true;
  deps_.loop->Cancel(std::exchange(timer_, EventLoop::kNoTimer));
}

void StallWatch::Look() {
  const base::MonotonicTime now = deps_.clock->Now();
  // A late look means that this process stood still, and could hear no beat.
  if (due_ != base::MonotonicTime{} && now - due_ >= kOwnFreeze) {
    for (auto& [rank, watched] : watched_) watched.progress.Forgive(now - due_);
  }
  for (const LocalRank& rank : ranks_->all()) LookAt(rank);
  const auto next = NextLook(now);
  due_ = now + next;
  timer_ = deps_.loop->After(next, [this] { Look(); });
}

// At the interval, or sooner where a rank will have been silent for too long before.
std::chrono::milliseconds StallWatch::NextLook(base::MonotonicTime now) const {
  std::chrono::milliseconds next = deps_.interval;
  for (const LocalRank& rank : ranks_->all()) {
    const auto silent_from = watched_.at(rank.rank).progress.SilentFrom();
    if (rank.gone || !silent_from || *silent_from <= now) continue;
    next = std::min(next, std::chrono::ceil<std::chrono::milliseconds>(*silent_from - now));
  }
  return next;
}

void StallWatch::OnState(const LocalRank& rank) {
  Watched& watched = watched_.at(rank.rank);
  watched.progress.OnState(rank.state, deps_.clock->Now());
  watched.stall.reset();
}

void StallWatch::OnBeat(const LocalRank& rank, const megatrain::v1::RankBeat& beat) {
  Watched& watched = watched_.at(rank.rank);
  watched.progress.OnBeat(beat, deps_.clock->Now());
  if (watched.stall) LookAt(rank);
}

void StallWatch::LookAt(const LocalRank& rank) {
  if (rank.gone || stopped_) return;
  Watched& watched = watched_.at(rank.rank);
  const base::MonotonicTime now = deps_.clock->Now();
  const bool was_stalled = watched.stall.has_value();
  const auto stall = watched.progress.Look(now);
  const bool was_silent = was_stalled && watched.stall->last_beat.has_value();
  const bool is_silent = stall && stall->last_beat.has_value();
  watched.stall = stall;
  if (stall.has_value() == was_stalled && is_silent == was_silent) return;
  if (stall) {
    log::Warn("a rank shows no progress", {{"job", deps_.job_uid},
                                           {"epoch", control::EpochText(deps_.epoch)},
                                           {"rank", rank.rank},
                                           {"step", rank.step},
                                           {"seconds", Seconds(stall->since, now)},
                                           {"beats", !is_silent},
                                           {"device", watched.progress.mark()}});
  } else {
    log::Info("a rank goes on", {{"job", deps_.job_uid}, {"rank", rank.rank}, {"step", rank.step}});
  }
  deps_.changed(rank);
}

void StallWatch::Describe(const LocalRank& rank, megatrain::v1::RankStatus* out) const {
  const Watched& watched = watched_.at(rank.rank);
  if (!watched.stall || rank.gone) return;
  const base::MonotonicTime now = deps_.clock->Now();
  const int64_t wall_us = base::ToUnixMicros(deps_.clock->WallNow());
  const auto wall_of = [&](base::MonotonicTime time) {
    return wall_us - std::chrono::duration_cast<std::chrono::microseconds>(now - time).count();
  };
  const ProgressWatch::Stall& stall = *watched.stall;
  out->mutable_stall()->set_since_us(wall_of(stall.since));
  out->mutable_stall()->set_limit_ms(stall.limit.count());
  out->mutable_stall()->set_mark(watched.progress.mark());
  if (stall.last_beat) out->mutable_stall()->set_last_beat_us(wall_of(*stall.last_beat));
}

std::string StallWatch::WhereItStood(const LocalRank& rank) const {
  const Watched& watched = watched_.at(rank.rank);
  const std::string& mark = watched.progress.mark();
  if (watched.stall) {
    return fmt::format("; it had shown no progress for {} s{}",
                       Seconds(watched.stall->since, deps_.clock->Now()),
                       mark.empty() ? "" : ", its device at " + mark);
  }
  // A rank that was not killed has said itself where it failed.
  const bool unseen = rank.gone && !rank.exit.known;
  return (rank.exit.signal == 0 && !unseen) || mark.empty() ? "" : "; device last at " + mark;
}

}  // namespace mt::node
