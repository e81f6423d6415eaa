// When a run saves and what follows: due steps and times, the collective save, pruning, and the
// policy for saves that fail. A save either blocks training or goes on beside it
// (checkpoint.async_save, background_save.h); the last one of a run and those that a release or a
// stop waits for block.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/run_list.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/second_copy.h"
#include "worker/checkpoint/writer.h"
#include "worker/engine/engine.h"
#include "worker/failure/failure.h"
#include "worker/train/background_save.h"
#include "worker/train/fence_repair.h"
#include "worker/train/observer.h"
#include "worker/train/resume.h"
#include "worker/train/run_data.h"
#include "worker/train/step_judge.h"

namespace mt::train {

// One thread. Everything that Args points to must outlive the object.
class Checkpointer {
 public:
  struct Args {
    const megatrain::v1::JobSpec* job = nullptr;  // its current state; updates change it
    StartPoint start;
    std::optional<CheckpointRecord> loaded;  // the one that the run goes on from; on rank 0
    // The part of the manifest that all saves of this run share: job, run, spec, facts, parent.
    checkpoint::Manifest manifest;
    checkpoint::RunRecord run;  // on rank 0, as in run.json
    engine::Engine* engine = nullptr;
    comm::ProcessGroup* group = nullptr;  // all ranks; nullptr: one
    // The same ranks, for saves beside training, of which the engine has a snapshot; nullptr: one.
    comm::ProcessGroup* background_group = nullptr;
    // How many of the first training samples each data set of a blend gave; empty: no blend.
    std::function<std::vector<int64_t>(int64_t samples)> consumed_by_member;
    std::shared_ptr<DataCheck> data_check;  // before each save
    // Seconds that training has stood still for saves so far, by the device's clock.
    std::function<double()> stalled;
    const base::Clock* clock = nullptr;
    TrainObserver* observer = nullptr;
    FenceRepair fence_repair;                                 // on rank 0
    std::function<std::vector<int64_t>()> kept_steps = {};    // TrainArgs::kept_steps
    bool saves_rest = true;                                   // TrainArgs::saves_rest
    std::function<Status(std::string_view point)> failpoint;  // test seam
  };
  explicit Checkpointer(const Args& args);

  // True if the run has a directory to save to.
  bool enabled() const { return !args_.start.directory.empty(); }
  // True if checkpoint.every_iters asks for a save after this step; the same on every rank.
  bool DueAfter(int64_t step) const;
  // True if checkpoint.every has passed since the last save, by this rank's clock, or where saves
  // are periodic and the last one failed, the wait before it is tried again (P1). Rank 0 alone
  // asks; its answer reaches all ranks as a command bit.
  bool DueByTime() const;
  // The ranks were held from `since` to `now`: the part of it after the last save does not count
  // towards checkpoint.every.
  void SkipPause(base::MonotonicTime since, base::MonotonicTime now) {
    last_try_ += now - std::max(since, last_try_);
  }
  // The job's spec for the manifests to come.
  void SetSpec(std::string spec_json) { args_.manifest.spec_json = std::move(spec_json); }
  // Collective and blocking; all ranks return the same status, and rank 0 reports to the observer.
  // The engine is at the end of `step`. OK without a directory, and if this step is saved already.
  // Ends a save beside training first; an error of that one which ends the run is the status.
  Status Save(int64_t step);

  // --- Saves beside training; all but IsOver are collective. Without checkpoint.async_save Begin
  // is Save, and there is never one under way.
  // Begins a save of the state after `step`. While another one is under way, a requested one is
  // kept for End to begin, any other is left out and counted.
  Status Begin(int64_t step, bool requested);
  // Rank 0: the save beside training is over on this rank. Its answer reaches all ranks as a
  // command bit, upon which they call End.
  bool IsOver() const { return background_ != nullptr && background_->ended(); }
  // Blocks until the save under way is over, reports it, and begins the one that was kept, of the
  // state after `step`. The status is that of the save; OK where none is under way.
  Status End(int64_t step);
  // The same without another save.
  Status Settle();
  // Rank 0, after each step: a save under way that has not moved a byte for P1's limit has failed,
  // as far as those who wait for it are concerned; training goes on, and what becomes of it is
  // reported when it ends.
  void Watch();
  // Rank 0's, where the job has a second directory; else nullptr.
  checkpoint::SecondCopy* second() const { return second_.get(); }
  // A requested save waits for the one under way.
  bool is_requested() const { return requested_; }

  // Rank 0: labels a checkpoint of the run's directory, durably. kFailedPrecondition where another
  // run holds the directory; else errors of the storage.
  Status Label(const CheckpointRecord& saved, const checkpoint::Label& label);
  // Rank 0: the validation loss of a step, which is kept with the step's checkpoint where there is
  // one, now or later: a save under way gets it when it ends, whatever is evaluated meanwhile. The
  // first one of a step counts. Best effort.
  void TakeEvaluation(const EvalRecord& record);
  // The loop tells it of the steps.
  StepsSinceSave& since_save() { return since_save_; }
  // On rank 0: the run, as in run.json.
  const checkpoint::RunRecord& run() const { return args_.run; }
  // True if the checkpoint of this step is on disk; the same on every rank.
  bool IsSaved(int64_t step) const { return enabled() && last_saved_step_ == step; }
  // What the run ends with if this failed save ends it, else OK: another run holds the directory
  // (cause USER_ERROR), the data were changed under the run, or the policy is `strict` (cause
  // STORAGE, with the reason SAVE_FAILED). A directory that is gone is no such case.
  Status EndedBy(const Status& saved) const;
  // Rank 0: the newest checkpoint where it is of this step or of a later one, else why that was not
  // saved; kFailedPrecondition where no save was tried. nullopt: its save is under way, or kept.
  std::optional<StatusOr<CheckpointRecord>> SavedSince(int64_t step) const;

 private:
  // How far a save has come on this rank. Any thread.
  struct SaveProgress {
    int64_t step = 0;
    int64_t total = 0;  // bytes
    std::atomic<int64_t> done = 0;
  };
  // What is known of a save when it begins.
  struct Begun {
    int64_t step = 0;
    kernels::StepScalars scalars;
    StepsSinceSave::Counts counts{};
    base::MonotonicTime at;
    double stalled = 0;  // Args::stalled
    std::shared_ptr<SaveProgress> progress;
    bool hangs = false;                      // and was reported
    std::optional<EvalRecord> evaluation{};  // of the step, on rank 0
  };

  Begun Note(int64_t step);
  Status SaveState(int64_t step);
  Status BeginState(int64_t step);
  // What both kinds of saves write; the rest of the arguments is the caller's.
  checkpoint::SaveArgs ArgsOf(const Begun& begun);
  // Takes and reports what has become of the save.
  Status Ended(const Begun& begun, const StatusOr<checkpoint::SaveResult>& saved,
               double stall_seconds);
  checkpoint::PruneArgs PruneAfterSave();
  bool is_reporter() const { return args_.group == nullptr || args_.group->rank() == 0; }
  void WriteEvaluation(const EvalRecord& record);
  // Rank 0's hold on the directory; nullptr elsewhere.
  const checkpoint::Fence* fence() const {
    return args_.start.fence ? &*args_.start.fence : nullptr;
  }

  Args args_;
  int64_t last_saved_step_ = -1;                // the newest one on disk; -1: none
  std::optional<CheckpointRecord> last_saved_;  // that checkpoint, on rank 0
  std::optional<EvalRecord> last_eval_;         // the first one of its step; on rank 0
  int64_t num_saved_ = 0;  // checkpoints of this start that are not spoiled, on rank 0
  StepsSinceSave since_save_;
  // PruneArgs::known. Of the thread that saves; there is one save at a time.
  std::map<checkpoint::CheckpointId, std::string> known_runs_;
  std::unique_ptr<BackgroundSave> background_;  // nullptr: saves block
  std::optional<Begun> under_way_;
  int64_t watched_bytes_ = -1;  // of the save under way, when it moved last
  base::MonotonicTime moved_at_;
  bool requested_ = false;
  int64_t skipped_ = 0;  // saves that were left out during the one under way
  base::MonotonicTime last_try_;
  int failures_ = 0;              // of saves in a row
  base::MonotonicTime retry_at_;  // after a failure
  int64_t tried_step_ = -1;       // of the newest save that is over
  Status tried_status_;
  std::unique_ptr<checkpoint::SecondCopy> second_;  // on rank 0, where the job has one
};

}  // namespace mt::train
