// Where a run reports to. Called on the training thread but for activities and second copies,
// which any thread may report, so implementations hand over and return at once. Records and
// checkpoints come on world rank 0 only, states and progress on every rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/train/command.h"
#include "worker/train/records.h"

namespace megatrain::v1 {
class BenchReport;
class RankTrace;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::train {

enum class TrainState : uint8_t {
  kLoading,
  kReady,
  kTraining,
  kHeld,  // waits on the host, with all it has
  kExiting,
};

// Every method has an empty body: override what is of interest.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // `step` is the last one done.
  virtual void OnState(TrainState /*state*/, int64_t /*step*/) {}
  // Something moved: a step, an idle reduction of held ranks, a microbatch of an evaluation, bytes
  // saved or loaded. For watchdogs.
  // `step` is the last one done.
  virtual void OnProgress(int64_t /*step*/) {}
  // What goes on beside steps, or before the first one: its begin and how far it has come, and its
  // end. On every rank.
  virtual void OnActivity(const Activity& /*activity*/) {}
  virtual void OnActivityEnd(ActivityKind /*kind*/) {}
  // After every step, on every rank.
  virtual void OnCounters(const RankCounters& /*counters*/) {}
  virtual void OnRunInfo(const RunInfo& /*info*/) {}
  // In rising order of steps, one step late.
  virtual void OnStep(const megatrain::v1::StepRecord& /*record*/) {}
  virtual void OnEval(const EvalRecord& /*record*/) {}
  // Of kind bench (worker/bench), after the last step.
  virtual void OnBench(const megatrain::v1::BenchReport& /*report*/) {}
  // Of the steps that TrainArgs::trace names, on every rank, when the run ends well.
  virtual void OnTrace(const megatrain::v1::RankTrace& /*trace*/) {}
  virtual void OnCheckpointSaved(const CheckpointRecord& /*record*/) {}
  virtual void OnCheckpointFailed(int64_t /*step*/, const Status& /*why*/) {}
  // A copy to the second directory was tried. Any thread.
  virtual void OnSecondCopy(const SecondCopyRecord& /*record*/) {}
  // Folders of complete checkpoints that pruning has removed.
  virtual void OnCheckpointsDeleted(const std::vector<std::string>& /*paths*/) {}
  virtual void OnCommandDone(const CommandResult& /*result*/) {}
  // What an update has changed, on every rank.
  virtual void OnSettings(const RunSettings& /*settings*/) {}
  // The run has failed. Told at most once, before groups are ended and anything is destroyed, both
  // of which may wait for a device that answers no more. `alone`: this rank leaves its groups, and
  // its peers hear of it in no other way; otherwise all ranks share the verdict.
  virtual void OnFailed(const Status& /*why*/, bool /*alone*/) {}
};

}  // namespace mt::train
