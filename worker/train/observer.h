// Where a run reports to. Called on the training thread, so implementations hand over and return at
// once. Records and checkpoints come on world rank 0 only, states and progress on every rank.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "worker/train/records.h"

namespace mt::train {

enum class TrainState : uint8_t { kLoading, kReady, kTraining, kExiting };

// Every method has an empty body: override what is of interest.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnState(TrainState /*state*/) {}
  // Something moved: a step, a microbatch of an evaluation, bytes saved or loaded. For watchdogs.
  // `step` is the last one done.
  virtual void OnProgress(int64_t /*step*/) {}
  virtual void OnRunInfo(const RunInfo& /*info*/) {}
  // In rising order of steps, one step late.
  virtual void OnStep(const StepRecord& /*record*/) {}
  virtual void OnEval(const EvalRecord& /*record*/) {}
  virtual void OnCheckpointSaved(const CheckpointRecord& /*record*/) {}
  virtual void OnCheckpointFailed(int64_t /*step*/, const Status& /*why*/) {}
  // The word of this command (Command::id) has acted on every rank.
  virtual void OnCommandDone(const std::string& /*id*/) {}
};

}  // namespace mt::train
