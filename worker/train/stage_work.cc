#include "worker/train/stage_work.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace mt::train {

using kernels::GradMode;
using model::GptModel;
using schedule::Action;

int MicrobatchWindow(const schedule::Schedule& schedule, int stage) {
  // Actions left of each microbatch, and the first one that is not over.
  const int per_microbatch = schedule.chunks * (schedule.forward_only ? 1 : 2);
  std::vector<int> left(static_cast<size_t>(schedule.microbatches), per_microbatch);
  int window = 0;
  int first = 0;
  for (const Action& action : schedule.actions[static_cast<size_t>(stage)]) {
    window = std::max(window, action.microbatch - first + 1);
    --left[static_cast<size_t>(action.microbatch)];
    while (first < schedule.microbatches && left[static_cast<size_t>(first)] == 0) ++first;
  }
  return window;
}

void StageWork::Begin(PassArgs pass) {
  pass_ = std::move(pass);
  num_loaded_ = 0;
}

int StageWork::Place(int microbatch) {
  const int place = microbatch % args_.window;
  if (microbatch < num_loaded_) return place;
  CHECK_EQ(microbatch, num_loaded_) << "microbatches begin in their order";
  ++num_loaded_;
  const StepPhase interrupted = args_.phases->Switch(StepPhase::kData);
  args_.model->LoadBatch(place, pass_.next());
  args_.phases->Switch(interrupted);
  return place;
}

GptModel::StepArgs StageWork::StepArgsOf(int microbatch) const {
  GptModel::StepArgs step = pass_.step;
  step.mode = microbatch == 0 ? GradMode::kOverwrite : GradMode::kAdd;
  step.last = microbatch + 1 == pass_.microbatches;
  return step;
}

Status StageWork::Forward(const Action& action) {
  const StepPhase interrupted = args_.phases->Switch(StepPhase::kDpComm);
  const Status weights = args_.sync->WaitWeights(*args_.stream, action.chunk);
  args_.phases->Switch(interrupted);
  RETURN_IF_ERROR(weights);
  const int place = Place(action.microbatch);
  if (pass_.training) {
    args_.model->Forward(action.chunk, action.slot, place, StepArgsOf(action.microbatch));
  } else {
    args_.model->Evaluate(action.chunk, action.slot, place, pass_.sums);
  }
  return status();
}

Status StageWork::Backward(const Action& action) {
  args_.model->Backward(action.chunk, action.slot, Place(action.microbatch),
                        StepArgsOf(action.microbatch));
  return status();
}

Status StageWork::status() const {
  if (args_.tensor != nullptr) RETURN_IF_ERROR(args_.tensor->status());
  return args_.sync->status();
}

}  // namespace mt::train
