// Traces of a run's steps (worker/trace): of steps that TrainArgs::trace names, which each rank
// gives to its observer; and of those that a command asks for, which rank 0 collects from all ranks
// and leaves as a file beside its log.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/engine/engine.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/trace/step_tracer.h"

namespace megatrain::v1 {
class JobTrace;
}

namespace mt::trace {

// A profile that has ended: the file with its trace, in StepProfile::Args::trace_directory.
struct ProfileRecord {
  std::string trace;  // the file's name
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t bytes = 0;
  std::string note;  // why it has fewer steps than were asked for; empty: it has all
};

// One thread. What is collective is called at the same place between steps on every rank.
class StepProfile {
 public:
  // The pointers must outlive it.
  struct Args {
    engine::Engine* engine = nullptr;
    parallel::RankGroups* groups = nullptr;
    parallel::CommSpans* spans = nullptr;
    const base::Clock* clock = nullptr;
    int chunks = 1;      // per stage
    TraceSteps planned;  // empty: none
    // Gets the planned trace when the run ends; empty where none is planned.
    std::function<void(const megatrain::v1::RankTrace&)> on_planned;
    std::string trace_directory;  // of rank 0; empty: no command is followed
    std::string job_uid;
    int64_t total_steps = 0;
  };
  explicit StepProfile(const Args& args);

  // Collective: begins a profile of rank 0's `asked` steps behind `last`, which is over on the
  // device; nullopt elsewhere. The status is the groups'. *refused: why no rank has begun it, alike
  // on every rank.
  Status Begin(const std::optional<int64_t>& asked, int64_t last, bool held, Status* refused);
  // Call before `step` is enqueued. Begins the planned trace; collective where a profile's steps
  // are over: ends it.
  Status BeforeStep(int64_t step);
  // What the host did for `step`, from `begin` until now.
  void AddHost(std::string_view what, int64_t step, base::MonotonicTime begin) {
    tracer_.AddHost(what, step, begin);
  }
  // Collective: ends a profile before its last step, since no step follows `last` (for now) for
  // this reason.
  Status EndEarly(int64_t last, std::string_view why);
  // Where the run ends: as EndEarly, and ends the planned trace.
  Status EndRun(int64_t last);

  // Rank 0: what the newest profile has come to; nullopt: it has not ended, or none was begun.
  const std::optional<StatusOr<ProfileRecord>>& outcome() const { return outcome_; }

 private:
  // What refuses a profile of so many steps; OK: nothing. A question to what all ranks know alike.
  Status Check(int64_t steps, int64_t last, bool held) const;
  Status Finish(int64_t last, std::string_view note);
  StatusOr<ProfileRecord> Write(const megatrain::v1::JobTrace& trace) const;

  const Args args_;
  StepTracer tracer_;
  bool profiling_ = false;  // what is traced was asked for by a command
  int64_t asked_ = 0;       // steps, by that
  std::optional<StatusOr<ProfileRecord>> outcome_;
};

}  // namespace mt::trace
