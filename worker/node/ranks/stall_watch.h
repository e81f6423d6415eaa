// Finds the ranks of one job and epoch that make no progress (control-plane P1, P2) or do not beat
// (L9): looks at each of them at an interval, and when a rank has been silent for too long, and
// reports once when a rank stalls, once when its beats stop, and once when it goes on. Nothing is
// ended for it; that is left to the operator and the coordinator. Loop thread only; no I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "worker/node/loop/event_loop.h"
#include "worker/node/ranks/progress_watch.h"
#include "worker/node/ranks/rank_set.h"

namespace megatrain::v1 {
class RankBeat;
class RankStatus;
}  // namespace megatrain::v1

namespace mt::node {

class StallWatch {
 public:
  struct Deps {
    EventLoop* loop;
    const base::Clock* clock;
    std::chrono::milliseconds interval;  // between two looks at all ranks
    ProgressLimits limits;
    std::string job_uid;  // for the log, as is the epoch
    int64_t epoch;
    // This rank has stalled or goes on: Describe has changed.
    std::function<void(const LocalRank&)> changed;
  };
  // `ranks` must outlive the watch. Time counts from here.
  StallWatch(Deps deps, RankSet* ranks);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // Looks now and at every interval from now on.
  void Start();
  // The ranks are being ended: from now on no rank is found to stall or to go on.
  void Stop();

  // The rank has called, or changed its state, which is progress.
  void OnState(const LocalRank& rank);
  // The rank has sent a beat. A stalled rank is looked at at once.
  void OnBeat(const LocalRank& rank, const megatrain::v1::RankBeat& beat);

  // Fills in RankStatus.stall if the rank has a process and stalls.
  void Describe(const LocalRank& rank, megatrain::v1::RankStatus* out) const;
  // The end of the message about the end of a rank: "; device last at step 12, ...". Empty if
  // nothing is known, or if the rank itself said where it failed.
  std::string WhereItStood(const LocalRank& rank) const;

 private:
  struct Watched {
    ProgressWatch progress;
    std::optional<ProgressWatch::Stall> stall;  // as it was last reported
  };

  void Look();
  std::chrono::milliseconds NextLook(base::MonotonicTime now) const;
  void LookAt(const LocalRank& rank);

  const Deps deps_;
  RankSet* const ranks_;
  std::map<int, Watched> watched_;  // by world rank
  bool stopped_ = false;
  base::MonotonicTime due_{};  // when the next look was to be; zero: there was none
  EventLoop::TimerId timer_ = EventLoop::kNoTimer;
};

}  // namespace mt::node
