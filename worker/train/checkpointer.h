// When a run saves and what becomes of it: due steps and times, the collective save, pruning, and
// the policy for saves that fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/writer.h"
#include "worker/engine/engine.h"
#include "worker/train/observer.h"
#include "worker/train/resume.h"

namespace mt::train {

// One thread. What Args points to must outlive it.
class Checkpointer {
 public:
  struct Args {
    const megatrain::v1::JobSpec* job = nullptr;  // as it is now: an update changes it
    StartPoint start;
    std::optional<CheckpointRecord> loaded;  // that the run goes on from; on rank 0
    // What every save of this run has in common: job, spec, facts, parent.
    checkpoint::Manifest manifest;
    engine::Engine* engine = nullptr;
    comm::ProcessGroup* group = nullptr;  // all ranks; nullptr: one
    const base::Clock* clock = nullptr;
    TrainObserver* observer = nullptr;
    std::function<Status(std::string_view point)> failpoint;  // test seam
  };
  explicit Checkpointer(const Args& args);

  // Whether the run has a directory to save to.
  bool enabled() const { return !args_.start.directory.empty(); }
  // Whether the iteration count asks for a save after this step; the same on every rank.
  bool DueAfter(int64_t step) const;
  // Whether the time between saves is over, by this rank's clock; for rank 0, which tells all.
  bool DueByTime() const;
  // The ranks were held from then until now: what of it lies behind the last save does not count.
  void SkipPause(base::MonotonicTime since, base::MonotonicTime now) {
    last_try_ += now - std::max(since, last_try_);
  }
  // What the next manifests say of the job.
  void SetSpec(std::string spec_json) { args_.manifest.spec_json = std::move(spec_json); }
  // Collective; all ranks return the same status, and rank 0 tells the observer. The engine is at
  // the end of `step`. Without a directory, or if this step is saved already: OK.
  Status Save(int64_t step);
  // Whether a save that failed so ends the run: policy `strict`, or another epoch holds the
  // directory.
  bool EndsRun(const Status& saved) const;
  // The newest step that is on disk; -1: none.
  int64_t last_saved_step() const { return last_saved_step_; }
  // That checkpoint, on rank 0.
  const std::optional<CheckpointRecord>& last_saved() const { return last_saved_; }

 private:
  void Report(const checkpoint::SaveResult& saved, const kernels::StepScalars& scalars,
              base::MonotonicTime begin);
  void Prune() const;
  // What rank 0 holds of the directory; nullptr elsewhere.
  const checkpoint::Fence* fence() const {
    return args_.start.fence ? &*args_.start.fence : nullptr;
  }

  Args args_;
  int64_t last_saved_step_ = -1;
  std::optional<CheckpointRecord> last_saved_;
  base::MonotonicTime last_try_;
};

}  // namespace mt::train
