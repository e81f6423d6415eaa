// A pipeline stage's chunks as the executor drives them: microbatches from the loader, the model's
// actions, what must be there before them (gathered weights) and what follows (a tensor group's
// error). One object serves training and evaluation passes. Legend: m microbatches of a pass.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "worker/data/microbatch.h"
#include "worker/engine/action_recordings.h"
#include "worker/engine/phase_clock.h"
#include "worker/model/gpt_model.h"
#include "worker/parallel/gradient_sync.h"
#include "worker/parallel/pipeline/chunk_work.h"
#include "worker/parallel/schedule/schedule.h"

namespace mt::engine {

// How many microbatches of a pass are between their first and their last action on this stage, at
// most: so many must be kept at once, microbatch i in place i modulo that number.
int MicrobatchWindow(const schedule::Schedule& schedule, int stage);

// One thread.
class StageWork final : public pipeline::ChunkWork {
 public:
  struct Args {
    model::GptModel* model = nullptr;
    parallel::TensorParallel* tensor = nullptr;
    parallel::GradientSync* sync = nullptr;
    kernels::Stream* stream = nullptr;
    PhaseClock* phases = nullptr;
    ActionRecordings* recordings = nullptr;
    int window = 1;  // the model's max_microbatches
  };
  // What Args points to must outlive it.
  explicit StageWork(const Args& args) : args_(args) {}

  // Before each pass. `next` gives the microbatches in their order, each when its first action
  // comes. `step.mode` and `step.last` are set here.
  struct PassArgs {
    int microbatches = 0;
    std::function<data::Microbatch()> next;
    bool training = true;
    model::GptModel::StepArgs step;  // of training
    kernels::Tensor sums;            // of evaluation, f64 [2], added to
  };
  void Begin(PassArgs pass);

  Status Forward(const schedule::Action& action) override;
  Status Backward(const schedule::Action& action) override;
  kernels::Tensor Input(int chunk, int slot) override { return args_.model->input(chunk, slot); }
  kernels::Tensor Output(int chunk, int slot) override { return args_.model->output(chunk, slot); }
  kernels::Tensor OutputGrad(int chunk, int slot) override {
    return args_.model->output_grad(chunk, slot);
  }
  kernels::Tensor InputGrad(int chunk, int slot) override {
    return args_.model->input_grad(chunk, slot);
  }

 private:
  // Loads the microbatch where this is its first action; its place.
  int Place(int microbatch);
  // One action of training, as it comes or as a recording.
  void Train(const schedule::Action& action, bool backward);
  Status WaitWeights(int chunk);
  Status status() const;

  const Args args_;
  PassArgs pass_;
  int num_loaded_ = 0;     // of this pass
  bool recorded_ = false;  // this pass: buckets are reported behind the last backward
};

}  // namespace mt::engine
