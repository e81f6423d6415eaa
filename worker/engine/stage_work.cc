// How an action runs: what is eager, what is recorded, and when buckets of gradients are reported.
#include "worker/engine/stage_work.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "worker/engine/phase_scope.h"

namespace mt::engine {

using kernels::GradMode;
using model::GptModel;
using parallel::Action;

int MicrobatchWindow(const parallel::Schedule& schedule, int stage) {
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
  recorded_ = args_.recordings->on();
}

int StageWork::Place(int microbatch) {
  const int place = microbatch % args_.window;
  if (microbatch < num_loaded_) return place;
  CHECK_EQ(microbatch, num_loaded_) << "microbatches begin in their order";
  ++num_loaded_;
  const PhaseScope loading(args_.phases, StepPhase::kData);
  const data::Microbatch batch = pass_.next();
  if (pass_.label_bytes != nullptr) *pass_.label_bytes += batch.label_bytes;
  args_.model->LoadBatch(place, batch);
  return place;
}

Status StageWork::WaitWeights(const Action& action) {
  if (!args_.sync->has_replicas()) return args_.sync->WaitWeights(*args_.stream, action.chunk);
  const PhaseScope waiting(args_.phases, StepPhase::kDpComm);
  if (IsByLayer(action)) return args_.sync->WaitLayer(*args_.stream, action.chunk, -1);
  return args_.sync->WaitWeights(*args_.stream, action.chunk);
}

// A recording holds no waits for what is outside of it.
bool StageWork::IsByLayer(const Action& action) const {
  return pass_.training && action.microbatch == 0 && !recorded_ && args_.sync->has_replicas();
}

void StageWork::Train(const Action& action, bool backward) {
  const int place = Place(action.microbatch);
  GptModel::StepArgs step = pass_.step;
  step.mode = action.microbatch == 0 ? GradMode::kOverwrite : GradMode::kAdd;
  step.last = action.microbatch + 1 == pass_.microbatches;
  step.by_layer = !backward && IsByLayer(action);
  // Replicas wait for each bucket while the last microbatch runs: host calls, not to be recorded.
  const bool alone = !args_.sync->has_replicas();
  const bool reports = step.last && !(recorded_ && alone);
  const bool all_ready = step.last && !reports && backward;
  step.last = reports;
  const auto calls = [&] {
    if (backward) {
      args_.model->Backward(action.chunk, action.slot, place, step);
    } else {
      args_.model->Forward(action.chunk, action.slot, place, step);
    }
  };
  if (reports && !alone) {
    calls();
  } else {
    args_.recordings->Run({.chunk = action.chunk,
                           .slot = action.slot,
                           .place = place,
                           .backward = backward,
                           .mode = step.mode},
                          calls);
  }
  if (all_ready) args_.sync->ChunkReady(*args_.stream, action.chunk);
}

Status StageWork::Forward(const Action& action) {
  args_.phases->SetAction(action.microbatch, action.chunk);
  RETURN_IF_ERROR(WaitWeights(action));
  if (pass_.training) {
    Train(action, /*backward=*/false);
  } else {
    args_.model->Evaluate(action.chunk, action.slot, Place(action.microbatch), pass_.sums);
  }
  return status();
}

Status StageWork::Backward(const Action& action) {
  args_.phases->SetAction(action.microbatch, action.chunk);
  Train(action, /*backward=*/true);
  return status();
}

Status StageWork::status() const {
  if (args_.tensor != nullptr) RETURN_IF_ERROR(args_.tensor->status());
  return args_.sync->status();
}

}  // namespace mt::engine
