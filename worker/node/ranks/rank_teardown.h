// Ends the ranks of one job and epoch on this node, in one of two ways. Abort: one has failed, the
// others are told to exit by themselves and killed after control-plane P3. End: all are to go,
// SIGTERM and then SIGKILL after P5. Loop thread only; no I/O but through its seams.
#pragma once

#include <chrono>
#include <string>

#include "worker/node/loop/event_loop.h"
#include "worker/node/ranks/rank_launcher.h"
#include "worker/node/ranks/rank_links.h"
#include "worker/node/ranks/rank_set.h"

namespace mt::node {

class RankTeardown {
 public:
  struct Deps {
    EventLoop* loop;
    RankLauncher* launcher;
    RankLinks* links;
    std::chrono::milliseconds abort_kill;  // P3
  };
  // `ranks` must outlive it.
  RankTeardown(Deps deps, RankSet* ranks);
  ~RankTeardown();
  RankTeardown(const RankTeardown&) = delete;
  RankTeardown& operator=(const RankTeardown&) = delete;

  // Tells every rank that has not reported a fault itself to exit. Nothing happens if the ranks are
  // being ended already.
  void Abort(const std::string& reason);
  // Terminates every rank that runs. May follow Abort, and may be repeated; the first call's reason
  // counts.
  void End(const std::string& reason);
  // A rank has called while the ranks are being aborted: it is told to exit.
  void OnAttach(const LocalRank& rank);
  // All ranks have ended: nothing is killed any more.
  void Finish();

 private:
  void SendExit(const LocalRank& rank);

  const Deps deps_;
  RankSet* const ranks_;
  bool aborting_ = false;
  bool ending_ = false;
  std::string reason_;
  EventLoop::TimerId kill_timer_ = EventLoop::kNoTimer;
};

}  // namespace mt::node
