// Runs one stage's list of a pipeline schedule: waits for what comes in, lets the chunks compute,
// hands on what goes out. The same code for every schedule, for one stage without links, and for
// forward-only passes (schedule::ForwardOnly), which evaluation uses. Every stage of a pipeline
// runs the same schedule at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/parallel/pipeline/chunk_work.h"
#include "worker/parallel/pipeline/edges.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::pipeline {

// Where a pass spent its time on this stage, in seconds of the host's clock (on a CPU slot work is
// done when a call returns).
struct PassTimes {
  double total = 0;
  double forward = 0;   // inside ChunkWork::Forward
  double backward = 0;  // inside ChunkWork::Backward
  // The stage could not go on: for an input that had not come, or a buffer that had not left; with
  // overlap off also the transfers themselves.
  double activation_in = 0;
  double activation_out = 0;
  double gradient_in = 0;
  double gradient_out = 0;

  // The stage's bubble as measured, transfers that nothing hid included; wait() / total is its
  // share.
  double wait() const { return activation_in + activation_out + gradient_in + gradient_out; }
};

// Lanes of the edge on which this stage sends `kind`'s outputs (link.h), so that with overlap off
// no send ever waits for its receiver, which would deadlock some schedules: an activation that has
// not been received occupies a slot of its sender, a gradient one of its receiver; in a
// forward-only pass with several chunks a stage is at most 2 p actions ahead of the next.
int LanesOf(const schedule::Schedule& schedule, int sender_stage, schedule::ActionKind kind);

// One thread, but for Abort.
class Executor {
 public:
  struct Args {
    int stage = 0;
    ChunkWork* work = nullptr;  // outlives the executor
    // Outlives the executor; nullptr: one stage. The work's tensors outlive the links in turn,
    // whose threads may still be at them when a pass has failed.
    StageLinks* links = nullptr;
    const base::Clock* clock = nullptr;
    // At the begin and the end of everything that PassTimes counts as waiting. May be empty.
    std::function<void(bool begin)> on_wait;
  };
  explicit Executor(Args args);

  // One pass: all actions of this stage. The schedule is one that schedule::Check accepts, with at
  // most the slots that the work has. When it returns OK, everything sent has left. An error (of
  // the work, of a link, of Abort) says where the stage was, aborts all links, so that every other
  // stage's pass ends with kUnavailable, and ends the executor: later passes return it at once.
  Status Run(const schedule::Schedule& schedule);
  // Ends a running pass and all later ones with kAborted. Any thread.
  void Abort(std::string_view reason);
  // Of the last pass.
  const PassTimes& times() const { return times_; }

 private:
  void Begin(const schedule::Schedule& schedule);
  void Fail(const Status& why) LOCKS_EXCLUDED(mu_);
  Status failure() const LOCKS_EXCLUDED(mu_);
  Status RunActions(const schedule::Schedule& schedule);
  Status RunForward(const schedule::Action& action, bool forward_only);
  Status RunBackward(const schedule::Action& action);
  // Runs what may wait and counts its time.
  template <class Call>
  Status Wait(double* seconds, const Call& call);
  template <class Call>
  Status Timed(double* seconds, const Call& call);

  const Args args_;
  StageLinks no_links_;
  StageLinks* const links_;
  PassTimes times_;
  mutable base::Mutex mu_;
  Status failure_ GUARDED_BY(mu_);
};

}  // namespace mt::pipeline
