// The verdict over a step's summed vector. It is a function of what all ranks hold alike, so all
// ranks stop at the same step or none does.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "kernels/ops/step_scalars.h"
#include "worker/engine/step_ring.h"
#include "worker/engine/step_vector.h"

namespace mt::train {

// One thread. Steps are judged in their order.
class StepJudge {
 public:
  struct Args {
    bool stop_at_nonfinite = true;   // training.nonfinite is not "skip"
    int64_t stop_after_skipped = 0;  // training.stop_after_skipped; 0: off
    kernels::LossScaleConstants scale{};
    double loss_scale = 1;  // of the first step judged
  };
  explicit StepJudge(const Args& args) : args_(args), loss_scale_(args.loss_scale) {}

  // The error that ends the run: a rank's fault (this rank's own, or kUnavailable), or sums that
  // are not finite (cause NUMERIC) unless training goes on past such steps. `fault` is this rank's.
  Status Judge(int64_t step, const engine::StepVector& vector, const Status& fault) const;
  // The step was judged and the run goes on: counts it. The error (cause NUMERIC) that ends the run
  // where this one and those before it were all skipped, as many as stop_after_skipped. Steps that
  // a dynamic loss scale has skipped while it could still fall are passed over: it falls no more
  // than a few dozen times.
  Status Count(int64_t step, const engine::StepOutcome& outcome);
  // The run is to end by itself after the last step counted. The error that it ends with instead
  // where so many of the last steps were skipped as the limit says, 10 at most, and among them all
  // since its last save. `saved_step`: of that; the start's where there was none.
  Status JudgeEnd(int64_t saved_step) const;

 private:
  // A dynamic loss scale answers to this overflow: the loss is finite and the scale can still fall.
  bool IsForTheLossScale(const engine::StepVector& vector) const;
  // What is known of the steps that were skipped, and what to do.
  Status SkippedError(std::string_view how) const;

  // The newest steps, none of which was taken.
  struct Row {
    int64_t first = 0;  // of the steps
    int64_t last = 0;
    int64_t counted = 0;  // without those that were skipped for the loss scale
    double loss_scale = 1;
    engine::StepOutcome outcome{};  // of the last one
  };

  const Args args_;
  double loss_scale_;  // of the gradients of the next step to be judged
  Row row_;
};

// How many steps lie between saves, and how many of them were skipped: what a manifest says of its
// checkpoint. The same on all ranks. One thread.
class StepsSinceSave {
 public:
  struct Counts {
    int64_t steps = 0;     // since the save before, or since the start
    int64_t skipped = 0;   // of these
    bool spoiled = false;  // all of them, or the loss of the last one is no number
  };
  // The run goes on after this step, with the scalars as they are then.
  void Start(int64_t step, const kernels::StepScalars& scalars);
  // A step was judged.
  void TakeStep(bool loss_is_finite) { loss_is_finite_ = loss_is_finite; }
  // A save of the state after `step` begins; all steps up to it were judged.
  Counts Begin(int64_t step, const kernels::StepScalars& scalars);
  // That save has ended well.
  void Saved(int64_t step, const kernels::StepScalars& scalars);
  // The step of the newest save that was begun; the start's where there was none.
  int64_t begun_step() const { return begun_step_; }

 private:
  int64_t begun_step_ = 0;
  int64_t step_ = 0;     // of the newest save, or of the start
  int64_t skipped_ = 0;  // skipped_steps then
  bool loss_is_finite_ = true;
};

}  // namespace mt::train
