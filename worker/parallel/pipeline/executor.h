// Runs one stage's actions of a pipeline schedule: waits for inputs, lets the chunks compute, sends
// outputs. The same code runs every schedule, a single stage without links, and forward-only passes
// (ForwardOnly), which evaluation uses. All stages of a pipeline run the same schedule at
// the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/parallel/pipeline/chunk_work.h"
#include "worker/parallel/pipeline/edges.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::parallel {

// How a pass spent its time on this stage, in seconds of the host's clock. On a CPU slot the work
// is done when a call returns; where the device enqueues these are the times of the calls alone,
// and the device's own are those of its marks (on_wait).
struct PassTimes {
  double total = 0;
  double forward = 0;   // inside ChunkWork::Forward
  double backward = 0;  // inside ChunkWork::Backward
  // Time in which the stage waited for an input that had not arrived or a buffer that had not been
  // sent; with overlap off it includes the transfers themselves.
  double activation_in = 0;
  double activation_out = 0;
  double gradient_in = 0;
  double gradient_out = 0;

  // The measured pipeline bubble, including transfers that were not overlapped; wait() / total is
  // its share of the pass.
  double wait() const { return activation_in + activation_out + gradient_in + gradient_out; }
};

// Number of lanes (link.h) of the edge on which this stage sends the outputs of `kind`. It is large
// enough that with overlap off no send waits for its receiver, which would deadlock some schedules.
// An activation that is not yet received occupies a slot of its sender, a gradient one of its
// receiver; in a forward-only pass with several chunks a stage is at most 2 p actions ahead of the
// next.
int LanesOf(const Schedule& schedule, int sender_stage, ActionKind kind);

// Used by one thread, except for Abort.
class Executor {
 public:
  struct Args {
    int stage = 0;
    ChunkWork* work = nullptr;          // must outlive the executor
    kernels::Stream* stream = nullptr;  // that the work computes on; the same
    // Must outlive the executor; nullptr for a single stage. The work's tensors must outlive the
    // links, whose threads may still access them after a failed pass.
    StageLinks* links = nullptr;
    const base::Clock* clock = nullptr;
    // Called at the beginning and at the end of every wait that PassTimes counts. May be empty.
    std::function<void(bool begin)> on_wait;
    CommSpans* spans = nullptr;  // times parcels and these waits; nullptr: nothing does
  };
  explicit Executor(Args args);

  // Runs one pass, that is all actions of this stage; blocks. The schedule must satisfy
  // CheckSchedule and use no more slots than the work has. If it returns OK, everything has been
  // sent. An error (of the work, of a link, or kAborted) names stage and action, aborts all links,
  // so that every other stage's pass ends with kUnavailable, and is returned by all later passes.
  Status Run(const Schedule& schedule);
  // Ends the pass in progress and all later ones with kAborted. Any thread.
  void Abort(std::string_view reason);
  // Times of the last pass.
  const PassTimes& times() const { return times_; }

 private:
  Status Begin(const Schedule& schedule);
  void Fail(const Status& why) LOCKS_EXCLUDED(mu_);
  Status failure() const LOCKS_EXCLUDED(mu_);
  Status RunActions(const Schedule& schedule);
  // Before an action computes: links may begin to receive for those behind it.
  Status ExpectNext();
  Status RunForward(const Action& action, bool forward_only);
  Status RunBackward(const Action& action);
  // What a wait is for: the time that it counts in, and the link.
  struct WaitFor {
    double PassTimes::*seconds;
    CommUse use;
    SpanKind kind;
  };
  static const WaitFor kActivationIn, kActivationOut, kGradientIn, kGradientOut;
  // Runs a call that may wait, counts its time and reports it to on_wait.
  template <class Call>
  Status Wait(const WaitFor& what, const Call& call);
  template <class Call>
  Status Timed(double* seconds, const Call& call);

  const Args args_;
  StageLinks no_links_;
  StageLinks* const links_;
  std::span<const Action> behind_;        // what comes after the action that runs
  std::map<int64_t, int> ahead_of_pass_;  // by Pass::id: ReceivesAhead
  int ahead_ = 0;                         // of this pass; 0: no link begins receives
  PassTimes times_;
  mutable base::Mutex mu_;
  Status failure_ GUARDED_BY(mu_);
};

}  // namespace mt::parallel
